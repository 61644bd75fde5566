//! Reused buffers for large payloads.
//!
//! Fresh memory costs a page fault every 4 KiB when it is first written, which takes longer than the copy out of
//! the socket that fills it. So a large buffer is kept for the next payload when its last reader drops it. The pool is
//! last in, first out, because the most recent buffer is still in the processor's cache.
//!
//! [`empty`] and [`of_len`] lend a buffer, and [`share`] makes it readable by many. Whatever receives, reads or decrypts much uses it.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

/// Smaller buffers are cheap to allocate.
const BUFFER_LEN_MIN: usize = 64 << 10;
/// The most memory kept in this process, in bytes.
const KEPT_LEN_MAX: usize = 8 << 20;

static KEPT: Mutex<Pool> = Mutex::new(Pool { buffers: Vec::new(), len: 0 });

struct Pool {
    buffers: Vec<BytesMut>,
    len: usize,
}

/// Returns an empty buffer with room for `len` bytes.
pub fn empty(len: usize) -> BytesMut {
    let Some(mut buffer) = kept(len) else { return BytesMut::with_capacity(len) };
    buffer.clear();
    buffer
}

/// Returns a buffer of `len` bytes, all of which the caller must overwrite before anyone reads them: they are zeros, or those of an earlier
/// payload. A caller that cannot fill it drops it.
pub fn of_len(len: usize) -> BytesMut {
    // Fresh memory has zeros from the system, so nothing clears it here.
    let Some(mut buffer) = kept(len) else { return BytesMut::zeroed(len) };
    // Clears only what was never written.
    buffer.resize(len, 0);
    buffer
}

/// Returns a kept buffer with room for `len` bytes, with an earlier payload in it.
fn kept(len: usize) -> Option<BytesMut> {
    if len < BUFFER_LEN_MIN {
        return None;
    }
    let mut kept = KEPT.lock();
    // A buffer that is much too large is not used: a reader that keeps its data would pin the unused rest, too.
    let fits = |buffer: &BytesMut| (len..=len + len / 4).contains(&buffer.capacity());
    let index = kept.buffers.iter().rposition(fits)?;
    let buffer = kept.buffers.remove(index);
    kept.len -= buffer.capacity();
    Some(buffer)
}

/// Makes a buffer shareable. Its memory returns to the pool when the last reader drops it.
pub fn share(buffer: BytesMut) -> Bytes {
    if buffer.capacity() < BUFFER_LEN_MIN { buffer.freeze() } else { Bytes::from_owner(SharedBuffer(buffer)) }
}

/// A buffer that readers share.
struct SharedBuffer(BytesMut);

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        let mut kept = KEPT.lock();
        // The oldest buffers are freed first: their size has gone unrequested for the longest time.
        while kept.len + buffer.capacity() > KEPT_LEN_MAX && !kept.buffers.is_empty() {
            let oldest = kept.buffers.remove(0);
            kept.len -= oldest.capacity();
        }
        if buffer.capacity() <= KEPT_LEN_MAX {
            kept.len += buffer.capacity();
            kept.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_the_pool_is_bounded() {
        let lend = |len| {
            let mut lent = empty(len);
            lent.extend_from_slice(&[7; 100]);
            share(lent)
        };
        let first = lend(1 << 20);
        let address = first.as_ptr();
        assert_eq!(first, [7; 100][..]);
        drop(first);
        let again = empty(1 << 20);
        assert!(again.is_empty() && again.as_ptr() == address);
        let many: Vec<_> = (0..100).map(|_| lend(1 << 20)).collect();
        drop(many);
        let mut written = of_len(1 << 20);
        assert_eq!(written.len(), 1 << 20);
        written.fill(7);
        drop(share(written));
        assert_eq!(of_len((1 << 20) - 1)[..], [7; (1 << 20) - 1], "nothing is cleared that is overwritten anyway");
        assert_eq!(of_len(100), [0; 100][..]);
        assert!(KEPT.lock().len <= KEPT_LEN_MAX);
        drop(lend(2 * KEPT_LEN_MAX));
        assert!(KEPT.lock().len <= KEPT_LEN_MAX);
    }
}
