//! Reading clocks, and waiting for them.

/// What the monotonic clock says, in nanoseconds.
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// How far the clock that the kernel stamps packets with is ahead of the monotonic one.
pub fn wall_offset_ns() -> u64 {
    // Of several attempts, the one during which least time passed was the least disturbed.
    let attempt = || {
        let before = now_ns();
        let wall = read(libc::CLOCK_REALTIME);
        let after = now_ns();
        (after - before, wall.saturating_sub(before + (after - before) / 2))
    };
    (0..16).map(|_| attempt()).min().map_or(0, |(_, offset_ns)| offset_ns)
}

/// Burns time until then.
pub fn spin_until(due_ns: u64) {
    while now_ns() < due_ns {
        std::hint::spin_loop();
    }
}

/// Sleeps until then, as well as the kernel can.
pub fn sleep_until(due_ns: u64) {
    let due = libc::timespec { tv_sec: (due_ns / 1_000_000_000) as _, tv_nsec: (due_ns % 1_000_000_000) as _ };
    // SAFETY: `due` is a timespec that lives through the call; nothing is to be told of what was left.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const due, std::ptr::null_mut()) };
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec. The call cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
