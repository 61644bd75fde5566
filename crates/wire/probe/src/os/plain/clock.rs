//! The clocks of the standard library, in nanoseconds.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The begin of this process's time.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A clock that is never set back.
pub(crate) fn monotonic_ns() -> u64 {
    // From 1 s on, so that times before the first reading can be named.
    u64::try_from(BEGIN.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1_000_000_000)
}

/// The wall clock.
pub(crate) fn wall_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// International atomic time: not known.
pub(crate) const fn tai_ns() -> u64 {
    0
}
