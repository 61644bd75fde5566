//! How fast a transfer went once it had got going.

use std::time::Duration;

use crate::clock::Nanos;

/// How often a mark is made.
const MARK_EVERY: Duration = Duration::from_millis(20);
/// Marks kept: more than a transfer of the longest kind makes.
const MARKS_MAX: usize = 2_000;
/// A transfer that took less time tells nothing.
const LEAST: Duration = Duration::from_millis(2);

/// Counts the bytes of a transfer. No I/O, and no clock of its own.
#[derive(Debug, Clone, Default)]
pub struct Rate {
    bytes: u64,
    /// When how much had come; the first of them when the first bytes came.
    marks: Vec<(Nanos, u64)>,
    last: Nanos,
}

impl Rate {
    /// `bytes` more came, or went, by `now`.
    pub fn note(&mut self, now: Nanos, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.last = now;
        let due = self.marks.last().is_none_or(|(at, _)| now.since(*at) >= MARK_EVERY);
        if due && self.marks.len() < MARKS_MAX {
            self.marks.push((now, self.bytes));
        }
    }

    /// All bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From the first bytes to the last.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.marks.first().map_or(Duration::ZERO, |(first, _)| self.last.since(*first))
    }

    /// Bits a second, in the time after the first third: by then TCP has found out what the path carries, or is as far
    /// from it as it will be for a while. Absent if there is too little to tell.
    #[must_use]
    pub fn bits_per_s(&self) -> Option<f64> {
        let (first, _) = *self.marks.first()?;
        let settled = first + self.took() / 3;
        let (from, before) = *self
            .marks
            .iter()
            .find(|(at, _)| *at >= settled)
            .filter(|(at, _)| self.last > *at)
            .or(self.marks.first())?;
        let took = self.last.since(from);
        (took >= LEAST).then(|| (self.bytes - before) as f64 * 8.0 / took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(1_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn the_slow_start_does_not_count() {
        let mut rate = Rate::default();
        for ms in 0..900 {
            rate.note(at(ms), if ms < 300 { 100 } else { 10_000 });
        }
        let bits_per_s = rate.bits_per_s().unwrap();
        assert!((bits_per_s / 80e6 - 1.0).abs() < 0.05, "{bits_per_s}");
        assert_eq!(rate.bytes(), 300 * 100 + 600 * 10_000);
    }

    #[test]
    fn too_little_tells_nothing() {
        let mut rate = Rate::default();
        assert_eq!(rate.bits_per_s(), None);
        rate.note(at(0), 1000);
        assert_eq!((rate.bits_per_s(), rate.took()), (None, Duration::ZERO));
        rate.note(at(10), 1000);
        assert!((rate.bits_per_s().unwrap() / 800e3 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_transfer_that_is_slow_takes_little_memory() {
        let mut rate = Rate::default();
        (0..1_000_000).for_each(|ms| rate.note(at(ms), 1));
        assert!(rate.marks.len() <= MARKS_MAX && rate.bits_per_s().is_some());
    }
}
