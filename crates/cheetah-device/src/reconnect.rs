//! The times of clients that replace lost connections: those of NBD and of iSCSI.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// The pause after the first failed attempt.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between attempts.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The number of lost connections that are logged one by one.
const LOSSES_LOGGED: u64 = 3;

/// The number of lost connections to a server.
#[derive(Debug, Default)]
pub struct Losses(AtomicU64);

impl Losses {
    /// Logs that a connection was lost: the first losses each, later ones ever more rarely, with their number.
    pub fn log(&self, device: &str, why: &str) {
        let losses = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        match losses {
            ..=LOSSES_LOGGED => tracing::warn!("{device}: connection lost: {why}"),
            _ if losses.is_power_of_two() => {
                tracing::warn!("{device}: connections lost: {losses} so far, the last because: {why}");
            }
            _ => tracing::debug!("{device}: connection lost: {why}"),
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

    #[test]
    fn pauses_start_at_none_and_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..9).map(|_| backoff.next_pause()).collect();
        assert_eq!(pauses[..4], [0, 50, 100, 200].map(Duration::from_millis));
        assert_eq!(pauses[8], PAUSE_MAX);
    }
}
