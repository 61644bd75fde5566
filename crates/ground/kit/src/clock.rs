//! The time of day. For durations use `Instant`: this clock may be set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since 1970 (UTC); zero if the clock is set to an earlier time.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the seconds since 1970 (UTC).
pub fn now_s() -> u64 {
    since_1970().as_secs()
}

/// Returns the milliseconds since 1970 (UTC).
pub fn now_ms() -> u64 {
    since_1970().as_millis().try_into().unwrap_or(u64::MAX)
}
