//! A cache of the most recently unpacked chunks.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

/// The maximum size of cached chunks, in bytes: enough for several readers, each in the middle of a different chunk.
const BUDGET_BYTES: u64 = 16 << 20;

/// The maximum number of cached chunks, which keeps a lookup cheap.
const CHUNKS_MAX: usize = 512;

/// A stream's number, and a chunk's number in the stream.
pub(super) type Key = (usize, u64);

/// Cached chunks, the most recently used first.
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
    /// Returns the chunk, if cached.
    pub fn get(&self, key: Key) -> Option<Bytes> {
        let mut chunks = self.chunks.lock();
        let at = chunks.latest.iter().position(|(other, _)| *other == key)?;
        if at > 0 {
            let found = chunks.latest.remove(at)?;
            chunks.latest.push_front(found);
        }
        chunks.latest.front().map(|(_, chunk)| chunk.clone())
    }

    /// Inserts a chunk, and evicts the least recently used ones.
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
    fn unused_chunks_are_evicted_first() {
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
