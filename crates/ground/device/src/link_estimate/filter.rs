//! A windowed min/max filter.

/// The best sample of the current window and the one before it. What "best" means is the caller's choice: the largest
/// delivery rate, the smallest round trip.
#[derive(Debug)]
pub(super) struct WindowedFilter<T> {
    current: Option<T>,
    previous: Option<T>,
    better: fn(T, T) -> T,
}

impl<T: Copy> WindowedFilter<T> {
    /// An empty filter. `better` returns the better of two samples.
    pub(super) const fn new(better: fn(T, T) -> T) -> Self {
        Self { current: None, previous: None, better }
    }

    /// Adds a sample to the current window.
    pub(super) fn add(&mut self, sample: T) {
        self.current = Some(self.current.map_or(sample, |best| (self.better)(best, sample)));
    }

    /// Ends the current window, and forgets the one before it.
    pub(super) fn start_window(&mut self) {
        self.previous = self.current.take();
    }

    /// Returns the best sample of both windows; `None` before the first.
    pub(super) fn best(&self) -> Option<T> {
        match (self.current, self.previous) {
            (Some(current), Some(previous)) => Some((self.better)(current, previous)),
            (current, previous) => current.or(previous),
        }
    }
}
