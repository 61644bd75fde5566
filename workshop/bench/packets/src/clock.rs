//! Clocks, and waiting until a time.

/// Returns the time of `CLOCK_MONOTONIC`, in nanoseconds.
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time of the calling thread, without time that a hypervisor took.
pub fn thread_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns how far `CLOCK_REALTIME`, by which the kernel stamps packets, is ahead of `CLOCK_MONOTONIC`.
pub fn wall_offset_ns() -> u64 {
    // The attempt that took the least time was disturbed least.
    let attempt = || {
        let before = now_ns();
        let wall = read(libc::CLOCK_REALTIME);
        let after = now_ns();
        (after - before, wall.saturating_sub(before + (after - before) / 2))
    };
    (0..16).map(|_| attempt()).min().map_or(0, |(_, offset_ns)| offset_ns)
}

/// Sleeps until `due_ns`.
pub fn sleep_until(due_ns: u64) {
    let due = libc::timespec { tv_sec: (due_ns / 1_000_000_000) as _, tv_nsec: (due_ns % 1_000_000_000) as _ };
    // SAFETY: `due` is a timespec that lives through the call; the remaining time is not asked for.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const due, std::ptr::null_mut()) };
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec. The call cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
