//! Small measurements of the machine: readings of the clock, oversleeping, and packets as close as raw sockets send them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::clock::{now_ns, sleep_until};

/// The most values that are kept.
pub const COUNT_MAX: usize = 10_000_000;
/// The IP header, and the longest transport header that is sent: TCP without options.
const IP_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

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

/// Sends `count` identical packets of that protocol without a payload, one call each, as fast as calls return.
pub fn burst(is_tcp: bool, to: SocketAddrV4, from: Ipv4Addr, count: usize) -> io::Result<()> {
    let packet = packet(is_tcp, to, from);
    // SAFETY: plain system call; the descriptor is checked and owned at once.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: a sockaddr_in of zeros is a valid one.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
    for _ in 0..count {
        // SAFETY: the packet and the address live through the call, and their sizes are passed.
        let sent = unsafe {
            let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            let address = (&raw const address).cast();
            libc::sendto(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0, address, length)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Returns an IP packet with a transport header of ports only. The kernel adds length, identifier and checksum.
fn packet(is_tcp: bool, to: SocketAddrV4, from: Ipv4Addr) -> Vec<u8> {
    let (protocol, header_bytes) = if is_tcp { (libc::IPPROTO_TCP, TCP_BYTES) } else { (libc::IPPROTO_UDP, UDP_BYTES) };
    let mut packet = vec![0; IP_BYTES + header_bytes];
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = protocol as u8;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    packet[20..22].copy_from_slice(&(to.port() ^ 1).to_be_bytes());
    packet[22..24].copy_from_slice(&to.port().to_be_bytes());
    if is_tcp {
        // A header of five words, and the flag ACK.
        packet[32..34].copy_from_slice(&[0x50, 0x10]);
    } else {
        packet[24..26].copy_from_slice(&(UDP_BYTES as u16).to_be_bytes());
    }
    packet
}
