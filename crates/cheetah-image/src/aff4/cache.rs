//! Chunks that were unpacked last.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of chunks that are kept: enough for several readers, each in the middle of a chunk.
const BUDGET_BYTES: u64 = 16 << 20;

/// Chunks that are kept at most, whatever their size, so that looking for one is cheap.
const CHUNKS_MAX: usize = 512;

/// A stream's number, and a chunk's in it.
pub(super) type Key = (usize, u64);

/// The last chunks, the latest at the front.
#[derive(Default)]
pub(super) struct Cache {
    chunks: Mutex<Chunks>,
}

#[derive(Default)]
struct Chunks {
    latest: VecDeque<(Key, Bytes)>,
    bytes: u64,
}

impl Cache {
    /// The chunk, if it is here.
    pub fn get(&self, key: Key) -> Option<Bytes> {
        let mut chunks = self.chunks.lock();
        let at = chunks.latest.iter().position(|(other, _)| *other == key)?;
        if at > 0 {
            let found = chunks.latest.remove(at)?;
            chunks.latest.push_front(found);
        }
        chunks.latest.front().map(|(_, chunk)| chunk.clone())
    }

    /// Keeps a chunk, and lets go of those not asked for longest.
    pub fn put(&self, key: Key, chunk: Bytes) {
        let mut chunks = self.chunks.lock();
        if chunks.latest.iter().any(|(other, _)| *other == key) {
            return;
        }
        chunks.bytes += chunk.len() as u64;
        chunks.latest.push_front((key, chunk));
        while chunks.bytes > BUDGET_BYTES || chunks.latest.len() > CHUNKS_MAX {
            let Some((_, oldest)) = chunks.latest.pop_back() else { return };
            chunks.bytes -= oldest.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_goes_first() {
        let (cache, chunk) = (Cache::default(), Bytes::from(vec![7; 4 << 20]));
        (0..4).for_each(|number| cache.put((0, number), chunk.clone()));
        assert!(cache.get((0, 0)).is_some());
        cache.put((0, 4), chunk.clone());
        assert!(cache.get((0, 1)).is_none() && cache.get((1, 0)).is_none());
        assert!([0, 2, 3, 4].iter().all(|number| cache.get((0, *number)).is_some()));
        (0..2000).for_each(|number| cache.put((1, number), Bytes::from_static(b"small")));
        assert!(cache.chunks.lock().latest.len() <= CHUNKS_MAX);
    }
}
