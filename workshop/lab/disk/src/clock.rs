//! Waking on time: sleeping until shortly before, and spinning for the rest.

use std::time::{Duration, Instant};

/// Longer than timers of an idle machine are late.
const SPIN: Duration = Duration::from_micros(80);

/// Time since the drive was started.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Returns the time in nanoseconds.
    pub fn now_ns(self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns how long to sleep before spinning until `at_ns`; none if it is time to spin.
    pub fn sleep(self, at_ns: u64) -> Option<Duration> {
        let left = Duration::from_nanos(at_ns.saturating_sub(self.now_ns()));
        left.checked_sub(SPIN).filter(|sleep| !sleep.is_zero())
    }

    /// Spins until `at_ns`.
    pub fn spin(self, at_ns: u64) {
        while self.now_ns() < at_ns {
            std::hint::spin_loop();
        }
    }
}
