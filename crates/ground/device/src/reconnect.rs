//! The times of clients that replace lost connections: those of NBD and of iSCSI.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// The pause after the first failed attempt.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between attempts.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The number of losses that are told one by one.
pub const LOSSES_TOLD: u64 = 3;
/// After this time without a loss, they are counted anew.
const CALM: Duration = Duration::from_secs(60);

/// Counts losses that may come by the thousand, so that the first ones are told each, and later ones ever more rarely.
#[derive(Debug, Default)]
pub struct Losses(Mutex<(u64, Option<Instant>)>);

impl Losses {
    /// Notes a loss. Returns its number, counted from 1, if it is to be told.
    pub fn note(&self) -> Option<u64> {
        let (count, last) = &mut *self.0.lock();
        if last.replace(Instant::now()).is_some_and(|last| last.elapsed() > CALM) {
            *count = 0;
        }
        *count += 1;
        Some(*count).filter(|nth| *nth <= LOSSES_TOLD || nth.is_power_of_two())
    }

    /// Notes that a request failed because its device is lost, and logs the error.
    pub fn log_failure(&self, error: &crate::Error) {
        match self.note() {
            Some(..=LOSSES_TOLD) => tracing::warn!("{error}"),
            Some(nth) => tracing::warn!("{error}; {nth} requests failed so far"),
            None => tracing::debug!("{error}"),
        }
    }

    /// Notes that a connection was lost, and logs it.
    pub fn log(&self, device: &str, why: &str) {
        match self.note() {
            Some(..=LOSSES_TOLD) => tracing::warn!("{device}: connection lost: {why}"),
            Some(nth) => tracing::warn!("{device}: connections lost: {nth} so far, the last because: {why}"),
            None => tracing::debug!("{device}: connection lost: {why}"),
        }
    }
}

/// The pauses before attempts to connect: none before the first, then ever longer ones.
#[derive(Debug, Default)]
pub struct Backoff {
    pause: Duration,
}

impl Backoff {
    /// Returns the pause before the next attempt.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        pause
    }
}

/// The granularity of deadlines: no request outlives its time-out by much.
pub fn tick_of(timeout: Duration) -> Duration {
    (timeout / 20).clamp(Duration::from_millis(1), Duration::from_millis(500))
}

/// Returns a timer for checking deadlines, with [that granularity](tick_of).
pub fn ticker(timeout: Duration) -> Interval {
    let mut tick = interval(tick_of(timeout));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_losses_are_told_each_and_later_ones_ever_more_rarely() {
        let losses = Losses::default();
        let told = |losses: &Losses| (0..1000).filter_map(|_| losses.note()).collect::<Vec<_>>();
        assert_eq!(told(&losses), [1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512]);
        tokio::time::advance(CALM * 2).await;
        assert_eq!(losses.note(), Some(1));
    }

    #[test]
    fn pauses_start_at_none_and_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..9).map(|_| backoff.next_pause()).collect();
        assert_eq!(pauses[..4], [0, 50, 100, 200].map(Duration::from_millis));
        assert_eq!(pauses[8], PAUSE_MAX);
    }
}
