//! The rate at which a count grows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which a rate is taken: fills record their progress every few seconds.
const WINDOW: Duration = Duration::from_secs(30);
/// Samples of a count that is looked at every second, and some more.
const SAMPLES_MAX: usize = 64;

/// The growth of a count during the last half minute, or since the sample before, if that is older.
#[derive(Debug, Default)]
pub struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    /// Notes the count at a time, and returns its growth per second; `None` until it was noted twice. A count that became
    /// less begins anew.
    pub fn note(&mut self, at: Instant, count: u64) -> Option<u64> {
        if self.0.back().is_some_and(|(_, last)| count < *last) {
            self.0.clear();
        }
        self.0.push_back((at, count));
        // Of older samples, the last one stays: looks may be further apart than this, or this process was frozen.
        let is_old = |(seen, _): &(Instant, u64)| at.duration_since(*seen) > WINDOW;
        while self.0.len() > SAMPLES_MAX || self.0.len() > 2 && self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
        let (begun, first) = self.0.front()?;
        let elapsed_ms = u64::try_from(at.duration_since(*begun).as_millis()).ok()?;
        (count - first).saturating_mul(1000).checked_div(elapsed_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_half_minute_and_begins_anew_when_the_count_falls() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut rate = Rate::default();
        assert_eq!(rate.note(after(0), 1000), None);
        assert_eq!(rate.note(after(10), 2000), Some(100));
        assert_eq!(rate.note(after(20), 2000), Some(50));
        assert_eq!(rate.note(after(50), 2000), Some(0));
        assert_eq!(rate.note(after(51), 5), None);
        assert_eq!(rate.note(after(52), 12), Some(7));
        for second in 0..1000 {
            rate.note(after(60 + second), 12 + 3 * second);
        }
        assert!(rate.0.len() <= SAMPLES_MAX);
        assert_eq!(rate.note(after(1060), 12 + 3000), Some(3));
    }

    #[test]
    fn a_count_that_is_looked_at_once_a_minute_has_a_rate_from_the_second_time_on() {
        let begun = Instant::now();
        let mut rate = Rate::default();
        let rates = [0, 600, 1800].map(|count| rate.note(begun + Duration::from_secs(count / 10), count));
        assert_eq!(rates, [None, Some(10), Some(10)]);
    }
}
