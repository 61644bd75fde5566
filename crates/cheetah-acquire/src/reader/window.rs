//! How much of a source to ask for ahead.

use std::time::Duration;

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

impl Default for Window {
    fn default() -> Self {
        Self { chunks: CHUNKS_FIRST }
    }
}

impl Window {
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
    fn fills_fast_links_and_spares_slow_ones() {
        let mut window = Window::default();
        (0..100).for_each(|_| window.starved(Duration::from_millis(50)));
        assert_eq!(window.chunks(), CHUNKS_MAX);
        (0..100).for_each(|_| window.starved(Duration::from_secs(9)));
        assert!(window.chunks() <= CHUNKS_MIN + 1);
    }
}
