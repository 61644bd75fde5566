//! Small measurements of the machine: readings of the clock, oversleeping, and packets as close as raw sockets send them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::clock::{now_ns, sleep_until};
use crate::raw::{RawSocket, Transport, packet};
use crate::stalls::Watch;

/// The most values that are kept.
pub const COUNT_MAX: usize = 10_000_000;
/// Packets of a burst that are judged together.
const BLOCK: usize = 10_000;

/// Prints the differences of consecutive clock readings in nanoseconds, each with how often it occurred.
pub fn clock(count: usize) -> io::Result<()> {
    let mut deltas = Vec::with_capacity(count);
    let mut before = now_ns();
    for _ in 0..count {
        let now = now_ns();
        deltas.push(now.saturating_sub(before));
        before = now;
    }
    deltas.sort_unstable();
    let mut report = String::new();
    for same in deltas.chunk_by(|one, next| one == next) {
        let _ = writeln!(report, "{} {}", same[0], same.len());
    }
    io::stdout().write_all(report.as_bytes())
}

/// Sleeps `count` times for `asked_ns`, and prints by how much each sleep was longer.
pub fn oversleep(asked_ns: u64, count: usize) -> io::Result<()> {
    // SAFETY: plain system call. Without it the kernel may round waits of ordinary threads up by 50 µs.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut report = String::new();
    for _ in 0..count {
        let due_ns = now_ns() + asked_ns;
        sleep_until(due_ns);
        let _ = writeln!(report, "{}", now_ns().saturating_sub(due_ns));
    }
    io::stdout().write_all(report.as_bytes())
}

/// Sends `count` identical packets without a payload, one call each, as fast as calls return. Prints the longest time for
/// which the host kept this thread from running during every [`BLOCK`] of them, where that is known.
pub fn burst(transport: Transport, to: SocketAddrV4, from: Ipv4Addr, count: usize) -> io::Result<()> {
    let (socket, packet) = (RawSocket::open(to)?, packet(transport, to, from, 0));
    let mut report = String::new();
    for sent in (0..count).step_by(BLOCK) {
        let mut watch = Watch::begin();
        for _ in 0..BLOCK.min(count - sent) {
            socket.send(&packet)?;
            watch.reads(now_ns());
        }
        if let Some(host_ns) = watch.host_ns() {
            let _ = writeln!(report, "host {host_ns}");
        }
    }
    io::stdout().write_all(report.as_bytes())
}
