//! Rate and remaining time, from the last seconds rather than the average of hours. No I/O.
//!
//! Runs of zeros take almost no time, so they are left out of the rate on which the estimate is based. The rest of the
//! source is assumed to hold the same share of content as the part already read.

use std::collections::VecDeque;
use std::time::Duration;

use crate::order::Progress;

/// The length of the window for the rate.
const LATELY: Duration = Duration::from_secs(15);
/// The distance between samples, which bounds their number.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// The remaining time is unknown before this.
const KNOWN_AFTER: Duration = Duration::from_secs(2);
/// Without progress for this long, the pass has stalled.
const STALLED_AFTER: Duration = Duration::from_secs(3);

/// The progress at one time.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at: Duration,
    done: u64,
    content: u64,
}

/// Meters the rate of a pass and estimates the time left. Times are since any fixed start.
#[derive(Debug)]
pub struct EtaMeter {
    total: u64,
    begun: Sample,
    samples: VecDeque<Sample>,
    now: Sample,
    moved_at: Duration,
}

impl EtaMeter {
    /// Starts with `done` of `total` bytes done.
    pub fn new(total: u64, done: u64) -> Self {
        let begun = Sample { at: Duration::ZERO, done, content: 0 };
        Self { total, begun, samples: VecDeque::from([begun]), now: begun, moved_at: Duration::ZERO }
    }

    /// Sets the number of bytes done and to do. Fewer bytes done than before are a new attempt, counted from 0.
    pub fn set(&mut self, done: u64, total: u64, at: Duration) {
        if done < self.now.done {
            let begun = Sample { at, ..Sample::default() };
            (self.begun, self.now, self.samples) = (begun, begun, VecDeque::from([begun]));
        }
        self.total = total;
        self.step(done - self.now.done, 0, at);
    }

    /// Adds `bytes`, of which `zeros` were holes.
    pub fn step(&mut self, bytes: u64, zeros: u64, at: Duration) {
        self.now.done += bytes;
        self.now.content += bytes.saturating_sub(zeros);
        self.moved_at = at;
        self.tick(at);
    }

    /// Advances the time.
    pub fn tick(&mut self, at: Duration) {
        self.now.at = self.now.at.max(at);
        if self.samples.back().is_none_or(|last| self.now.at >= last.at + SAMPLE_EVERY) {
            self.samples.push_back(self.now);
        }
        while self.samples.get(1).is_some_and(|second| second.at + LATELY <= self.now.at) {
            self.samples.pop_front();
        }
    }

    /// Returns the progress as reported in events.
    pub fn progress(&self) -> Progress {
        Progress {
            done_bytes: self.now.done,
            total_bytes: self.total,
            rate_bytes_s: self.rate(),
            left_s: self.left_s(),
            stalled: self.is_stalled(),
            ..Progress::default()
        }
    }

    /// Returns the current rate in bytes a second, zeros included.
    pub fn rate(&self) -> u64 {
        self.per_second(|sample| sample.done)
    }

    fn per_second(&self, of: impl Fn(&Sample) -> u64) -> u64 {
        let Some(first) = self.samples.front() else { return 0 };
        let took = self.now.at.saturating_sub(first.at).as_nanos();
        let bytes = u128::from(of(&self.now) - of(first));
        u64::try_from((bytes * 1_000_000_000).checked_div(took).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Returns whether nothing was done for some seconds.
    pub fn is_stalled(&self) -> bool {
        self.now.done < self.total && self.now.at.saturating_sub(self.moved_at) >= STALLED_AFTER
    }

    /// Returns the estimated seconds left; `None` while unknown.
    pub fn left_s(&self) -> Option<u64> {
        let left = self.total - self.now.done.min(self.total);
        if left == 0 {
            return Some(0);
        }
        if self.is_stalled() || self.now.at < KNOWN_AFTER {
            return None;
        }
        let done = self.now.done - self.begun.done;
        let content = u128::from(left) * u128::from(self.now.content) / u128::from(done.max(1));
        let lately = self.per_second(|sample| sample.content);
        // Only zeros in the window: use the rate of content since the start.
        let all = u128::from(self.now.content) * 1_000_000_000 / self.now.at.as_nanos().max(1);
        let rate = if lately > 0 { u128::from(lately) } else { all };
        match rate {
            // Only zeros so far.
            0 => u64::try_from(u128::from(left) / u128::from(self.rate().max(1))).ok(),
            rate => u64::try_from(content.div_ceil(rate)).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn a_new_attempt_is_counted_from_zero() {
        let mut meter = EtaMeter::new(1000, 0);
        for second in 1..=10 {
            meter.set(second * 90, 1000, Duration::from_secs(second));
        }
        for second in 11..=20 {
            meter.set((second - 10) * 10, 100, Duration::from_secs(second));
            let progress = meter.progress();
            assert_eq!((progress.done_bytes, progress.total_bytes), ((second - 10) * 10, 100));
        }
        assert_eq!((meter.rate(), meter.left_s()), (11, Some(0)), "100 bytes in 9 s");
    }

    #[test]
    fn a_steady_rate_gives_the_time_left() {
        let mut pace = EtaMeter::new(100 * MIB, 0);
        (1..=20).for_each(|s| pace.step(MIB, 0, seconds(s)));
        assert_eq!((pace.rate(), pace.left_s()), (MIB, Some(80)));
    }

    #[test]
    fn zeros_are_not_taken_for_speed() {
        let mut pace = EtaMeter::new(400 * MIB, 0);
        (1..=20).for_each(|s| pace.step(MIB, 0, seconds(s)));
        // 180 MiB of zeros in no time, then content as before: a tenth is content, at 1 MiB/s.
        pace.step(180 * MIB, 180 * MIB, seconds(20));
        assert!(pace.left_s().is_some_and(|left| (18..=22).contains(&left)), "{:?}", pace.left_s());
        pace.step(MIB, 0, seconds(21));
        assert!(pace.left_s().is_some_and(|left| (18..=23).contains(&left)), "{:?}", pace.left_s());
    }

    #[test]
    fn only_the_last_seconds_count() {
        let mut pace = EtaMeter::new(1000 * MIB, 500 * MIB);
        (1..=20).for_each(|s| pace.step(10 * MIB, 0, seconds(s)));
        (21..=60).for_each(|s| pace.step(MIB, 0, seconds(s)));
        assert_eq!(pace.left_s(), Some(260));
    }

    #[test]
    fn a_stall_is_reported() {
        let mut pace = EtaMeter::new(100 * MIB, 0);
        (1..=5).for_each(|s| pace.step(MIB, 0, seconds(s)));
        pace.tick(seconds(7));
        assert!(!pace.is_stalled());
        pace.tick(seconds(8));
        assert!(pace.is_stalled() && pace.left_s().is_none());
        pace.step(MIB, 0, seconds(9));
        assert!(!pace.is_stalled());
    }
}
