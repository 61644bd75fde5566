//! How much of a source to ask for ahead.

use std::time::Duration;

use cheetah_drive::digests::CHUNK_BYTES;

/// At first: enough for 1 Gbit/s and 60 ms.
const CHUNKS_FIRST: usize = 8;
/// On a link so slow that more would only wait behind each other until they time out.
const CHUNKS_MIN: usize = 2;
/// On the fattest link. Bounds memory: this many MiB.
const CHUNKS_MAX: usize = 32;
/// A chunk that takes longer stands in a queue which more requests would only lengthen.
const SLOW: Duration = Duration::from_secs(2);

/// Chunks that may be under way. Grows whenever whoever waits for them finds none ready, so that the source is what
/// there is to wait for; shrinks where chunks take so long that they might time out.
#[derive(Debug)]
pub struct Window {
    chunks: usize,
}

impl Window {
    /// So many bytes at first, or as many as usual.
    pub fn first(bytes: Option<u64>) -> Self {
        let chunks = |bytes: u64| usize::try_from(bytes.div_ceil(CHUNK_BYTES)).unwrap_or(CHUNKS_MAX);
        Self { chunks: bytes.map_or(CHUNKS_FIRST, chunks).clamp(CHUNKS_MIN, CHUNKS_MAX) }
    }

    /// Chunks that may be under way.
    pub const fn chunks(&self) -> usize {
        self.chunks
    }

    /// A chunk had to be waited for; it took so long in all.
    pub fn starved(&mut self, took: Duration) {
        self.chunks = match took {
            took if took <= SLOW / 2 => (self.chunks + 1).min(CHUNKS_MAX),
            took if took <= SLOW => self.chunks,
            _ => (self.chunks - self.chunks / 4).max(CHUNKS_MIN),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_the_link_is_begun_with() {
        assert_eq!(Window::first(None).chunks(), CHUNKS_FIRST);
        assert_eq!(Window::first(Some(20 << 20)).chunks(), 20);
        assert_eq!(Window::first(Some(1)).chunks(), CHUNKS_MIN);
        assert_eq!(Window::first(Some(u64::MAX)).chunks(), CHUNKS_MAX);
    }

    #[test]
    fn fills_fast_links_and_spares_slow_ones() {
        let mut window = Window::first(None);
        (0..100).for_each(|_| window.starved(Duration::from_millis(50)));
        assert_eq!(window.chunks(), CHUNKS_MAX);
        (0..100).for_each(|_| window.starved(Duration::from_secs(9)));
        assert!(window.chunks() <= CHUNKS_MIN + 1);
    }
}
