//! The rate of a transfer after slow start.

use std::time::Duration;

use crate::clock::Nanos;

/// The interval between marks.
const MARK_EVERY: Duration = Duration::from_millis(20);
/// The most marks kept: more than the longest transfer makes.
const MARKS_MAX: usize = 2_000;
/// The shortest transfer that has a rate.
const LEAST: Duration = Duration::from_millis(2);
/// The growth from the second third of a transfer to the last that shows slow start, in which TCP doubles its rate each
/// round trip.
const GROWTH: f64 = 1.7;
/// The most round trips of slow start. From 10 segments, 24 doublings make 240 GB a round trip, more than any window.
const SLOW_START_TRIPS: u32 = 24;

/// Counts the bytes of a transfer. No I/O, and no clock of its own.
#[derive(Debug, Clone, Default)]
pub struct Rate {
    /// The upper limit of the path's round trip, if it is known.
    round_trip: Option<Duration>,
    bytes: u64,
    /// Times with the bytes received by then; the first mark is at the first bytes.
    marks: Vec<(Nanos, u64)>,
    last: Nanos,
}

impl Rate {
    /// Counts a transfer over a path whose round trip takes at most this long.
    #[must_use]
    pub fn over(round_trip: Duration) -> Self {
        Self { round_trip: Some(round_trip), ..Self::default() }
    }

    /// Notes that `bytes` more were transferred by `now`.
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

    /// Returns the bits a second after the first third, when slow start is mostly over; `None` if the transfer was too
    /// short.
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

    /// Returns whether the rate was still growing at the end, as in slow start over a long path: the path then carries
    /// more than [`bits_per_s`](Self::bits_per_s). A transfer of many round trips is not in slow start: if its rate grows,
    /// a busy machine delayed it before.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        let Some((begun, _)) = self.marks.first() else { return false };
        if self.round_trip.is_some_and(|trip| self.took() > trip * SLOW_START_TRIPS) {
            return false;
        }
        let came_by =
            |at: Nanos| self.marks.iter().take_while(|(mark, _)| *mark <= at).last().map_or(0, |(_, sum)| *sum);
        let (first, second) = (came_by(*begun + self.took() / 3), came_by(*begun + self.took() * 2 / 3));
        let (middle, last) = (second - first, self.bytes - second);
        self.took() >= LEAST && middle > first && last as f64 > GROWTH * middle as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(1_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn slow_start_does_not_count() {
        let mut rate = Rate::default();
        for ms in 0..900 {
            rate.note(at(ms), if ms < 300 { 100 } else { 10_000 });
        }
        let bits_per_s = rate.bits_per_s().unwrap();
        assert!((bits_per_s / 80e6 - 1.0).abs() < 0.05, "{bits_per_s}");
        assert_eq!(rate.bytes(), 300 * 100 + 600 * 10_000);
    }

    #[test]
    fn unfinished_slow_start_is_recognized() {
        let of = |trip_ms: u64, most: usize| {
            let mut rate = Rate::default();
            for trip in 0..600 / trip_ms {
                let bytes = (14_480 << trip.min(20)).min(most);
                // As fast as the link, until the next round trip.
                (0..10).for_each(|n| rate.note(at(trip * trip_ms + n), bytes / 10));
            }
            rate
        };
        // 1 Gbit/s and 10 Mbit/s.
        assert!(of(150, 18_750_000).is_growing() && of(50, 6_250_000).is_growing());
        assert!(!of(10, 1_250_000).is_growing() && !of(50, 62_500).is_growing());
        assert!(!Rate::default().is_growing());
    }

    #[test]
    fn many_round_trips_after_slow_start_a_growing_rate_is_not_slow_start() {
        let delayed = |round_trip_ms: u64| {
            let mut rate = Rate::over(Duration::from_millis(round_trip_ms));
            (0..600).for_each(|ms| rate.note(at(ms), if ms < 400 { 100 + ms as usize } else { 10_000 }));
            rate
        };
        assert!(delayed(50).is_growing());
        assert!(!delayed(5).is_growing());
    }

    #[test]
    fn short_transfer_has_no_rate() {
        let mut rate = Rate::default();
        assert_eq!(rate.bits_per_s(), None);
        rate.note(at(0), 1000);
        assert_eq!((rate.bits_per_s(), rate.took()), (None, Duration::ZERO));
        rate.note(at(10), 1000);
        assert!((rate.bits_per_s().unwrap() / 800e3 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn slow_transfer_takes_bounded_memory() {
        let mut rate = Rate::default();
        (0..1_000_000).for_each(|ms| rate.note(at(ms), 1));
        assert!(rate.marks.len() <= MARKS_MAX && rate.bits_per_s().is_some());
    }
}
