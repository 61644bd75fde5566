//! The number of chunks to keep in flight.

use std::time::Duration;

use cheetah_drive::digests::CHUNK_BYTES;

/// The initial size: the bandwidth-delay product of 1 Gbit/s and 60 ms.
const CHUNKS_FIRST: usize = 8;
/// The least. On a very slow link, more chunks would queue until they time out.
const CHUNKS_MIN: usize = 2;
/// The most, which bounds memory: this many MiB.
const CHUNKS_MAX: usize = 32;
/// A chunk that takes longer has waited in a queue, which more requests would lengthen.
const SLOW: Duration = Duration::from_secs(2);

/// The number of chunks that may be in flight. Grows when the reader finds no chunk ready; shrinks when chunks take so long
/// that they may time out.
#[derive(Debug)]
pub struct ReadWindow {
    chunks: usize,
}

impl ReadWindow {
    /// Starts with `bytes` in flight, or the default.
    pub fn first(bytes: Option<u64>) -> Self {
        let chunks = |bytes: u64| usize::try_from(bytes.div_ceil(CHUNK_BYTES)).unwrap_or(CHUNKS_MAX);
        Self { chunks: bytes.map_or(CHUNKS_FIRST, chunks).clamp(CHUNKS_MIN, CHUNKS_MAX) }
    }

    /// Returns the number of chunks that may be in flight.
    pub const fn chunks(&self) -> usize {
        self.chunks
    }

    /// Notes that the reader had to wait for a chunk, whose latency was `took`.
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
    fn a_known_window_is_the_first_within_limits() {
        assert_eq!(ReadWindow::first(None).chunks(), CHUNKS_FIRST);
        assert_eq!(ReadWindow::first(Some(20 << 20)).chunks(), 20);
        assert_eq!(ReadWindow::first(Some(1)).chunks(), CHUNKS_MIN);
        assert_eq!(ReadWindow::first(Some(u64::MAX)).chunks(), CHUNKS_MAX);
    }

    #[test]
    fn grows_on_fast_links_and_shrinks_on_slow_ones() {
        let mut window = ReadWindow::first(None);
        (0..100).for_each(|_| window.starved(Duration::from_millis(50)));
        assert_eq!(window.chunks(), CHUNKS_MAX);
        (0..100).for_each(|_| window.starved(Duration::from_secs(9)));
        assert!(window.chunks() <= CHUNKS_MIN + 1);
    }
}
