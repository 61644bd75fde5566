//! The kernel's clocks, in nanoseconds.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// `CLOCK_REALTIME`, by which the kernel stamps packets.
pub(crate) fn wall_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// `CLOCK_TAI`; 0 if the kernel has none.
pub(crate) fn tai_ns() -> u64 {
    clock_gettime_dynamic(DynamicClockId::Tai).map(nanoseconds).unwrap_or_default()
}

fn nanoseconds(now: Timespec) -> u64 {
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}
