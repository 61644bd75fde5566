//! Times in nanoseconds of the monotonic clock, which is never set back. On Linux it is `CLOCK_MONOTONIC`, which the kernel's
//! queues use.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::os::clock;

/// A point in time, in nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns the time now.
    #[must_use]
    pub fn now() -> Self {
        Self(clock::monotonic_ns())
    }

    /// Returns the time from `earlier` to this; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Nanos {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// How far `CLOCK_REALTIME`, by which the kernel stamps packets, is ahead of `CLOCK_MONOTONIC`. It changes whenever the
/// clock is set or slewed, so it is taken anew for each train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallOffset(u64);

impl WallOffset {
    /// The offset now, to within the time three clock readings take.
    #[must_use]
    pub fn now() -> Self {
        Self::of(clock::wall_ns)
    }

    /// The offset of `CLOCK_TAI`, by which the kernel stamps some packets and schedules others.
    #[must_use]
    pub fn tai() -> Self {
        Self::of(clock::tai_ns)
    }

    fn of(read: impl Fn() -> u64) -> Self {
        // The shortest of several attempts was the least disturbed.
        let attempt = || {
            let before = clock::monotonic_ns();
            let wall = read();
            let after = clock::monotonic_ns();
            (after.saturating_sub(before), wall.saturating_sub(before + after.saturating_sub(before) / 2))
        };
        let (_, offset) = (0..8).map(|_| attempt()).min().unwrap_or_default();
        Self(offset)
    }

    /// Converts `wall_ns` nanoseconds of `CLOCK_REALTIME`.
    #[must_use]
    pub const fn to_monotonic(self, wall_ns: u64) -> Nanos {
        Nanos(wall_ns.saturating_sub(self.0))
    }

    /// Returns that clock's reading at a time.
    #[must_use]
    pub const fn from_monotonic(self, at: Nanos) -> u64 {
        at.0.saturating_add(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converting_both_clocks_gives_the_same_time() {
        let offset = WallOffset::now();
        let (before, wall, after) = (Nanos::now(), clock::wall_ns(), Nanos::now());
        let converted = offset.to_monotonic(wall);
        let slack = Duration::from_millis(5);
        assert!(converted + slack >= before && converted <= after + slack, "{before} {converted} {after}");
    }
}
