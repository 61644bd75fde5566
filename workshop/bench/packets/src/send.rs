//! Sends packet by packet, each when it is due, or a whole train by one call.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use crate::clock::{now_ns, sleep_until};
use crate::raw::{RawSocket, Transport, packet};
use crate::realtime;
use crate::stalls::Watch;

/// Headers of IP and UDP.
const HEADERS_BYTES: usize = 28;
/// The time from building a train until its first packet is due.
const LEAD_NS: u64 = 200_000;
const PACKETS_MAX: usize = 1024;

/// How to wait for the time a packet is due.
#[derive(Debug, Clone, Copy)]
pub enum Method {
    /// `clock_nanosleep`, then `sendto`.
    Sleep,
    /// The same with a raw IP socket, at real-time priority on one processor: the naive sender of the paper (Mok et al., PAM 2015).
    Raw,
    /// Read the clock until the packet is due, then `sendto`.
    Spin,
    /// One `sendmmsg` for the whole train, without waiting for single packets.
    Mmsg,
}

/// The trains to send.
#[derive(Debug)]
pub struct TrainRequest {
    /// The destination.
    pub to: SocketAddrV4,
    /// Bytes of each packet, headers included.
    pub ip_bytes: usize,
    /// Packets in each train.
    pub packets: usize,
    /// The time from the start of one packet to the start of the next.
    pub gap_ns: u64,
    /// The number of trains.
    pub trains: usize,
    /// The time from the end of one train to the start of the next.
    pub interval_us: u64,
}

/// Sends the trains, and prints when each packet was due and when the call that sent it had returned, and of each train
/// the longest stall that the host caused.
pub fn send(method: Method, request: &TrainRequest) -> Result<(), Box<dyn Error>> {
    if request.packets == 0
        || request.packets > PACKETS_MAX
        || request.ip_bytes < HEADERS_BYTES + 8
        || request.ip_bytes > 65_000
    {
        return Err(format!("1 to {PACKETS_MAX} packets of 36 to 65000 bytes").into());
    }
    // SAFETY: plain system call. Without it the kernel may round waits of ordinary threads up by 50 µs.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let (socket, to) = (UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?, request.to);
    let raw = matches!(method, Method::Raw).then(|| RawSocket::open(to)).transpose()?;
    let one = match &raw {
        Some(_) => packet(Transport::Udp, to, Ipv4Addr::UNSPECIFIED, request.ip_bytes),
        None => vec![0; request.ip_bytes - HEADERS_BYTES],
    };
    let packets = vec![one; request.packets];
    let each = |packet: &[u8]| match &raw {
        Some(raw) => raw.send(packet),
        None => socket.send_to(packet, to).map(drop),
    };
    if raw.is_some() {
        realtime::enter().map_err(|error| format!("real-time priority is not permitted: {error}"))?;
    }
    let mut report = String::new();
    for _ in 0..request.trains {
        let start_ns = now_ns() + LEAD_NS;
        let due: Vec<u64> = (0..request.packets as u64).map(|number| start_ns + number * request.gap_ns).collect();
        let mut watch = Watch::begin();
        let left = match method {
            Method::Mmsg => at_once(&socket, to, &packets, start_ns, &mut watch)?,
            Method::Sleep | Method::Raw => one_by_one(each, &packets, &due, &mut watch, Watch::sleep)?,
            Method::Spin => one_by_one(each, &packets, &due, &mut watch, Watch::spin)?,
        };
        for (due_ns, left_ns) in due.iter().zip(left) {
            writeln!(report, "{due_ns} {left_ns}")?;
        }
        if let Some(host_ns) = watch.host_ns() {
            writeln!(report, "host {host_ns}")?;
        }
        report.push('\n');
        sleep_until(now_ns() + request.interval_us * 1000);
    }
    Ok(io::stdout().write_all(report.as_bytes())?)
}

fn one_by_one(
    send: impl Fn(&[u8]) -> io::Result<()>,
    packets: &[Vec<u8>],
    due: &[u64],
    watch: &mut Watch,
    wait: fn(&mut Watch, u64),
) -> io::Result<Vec<u64>> {
    let mut left = Vec::with_capacity(due.len());
    for (packet, due_ns) in packets.iter().zip(due) {
        wait(watch, *due_ns);
        send(packet)?;
        let after_ns = now_ns();
        watch.reads(after_ns);
        left.push(after_ns);
    }
    Ok(left)
}

fn at_once(
    socket: &UdpSocket,
    to: SocketAddrV4,
    payloads: &[Vec<u8>],
    start_ns: u64,
    watch: &mut Watch,
) -> io::Result<Vec<u64>> {
    // On a connected socket, an ICMP error (port unreachable) would fail a later train.
    let mut address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
        sin_zero: [0; 8],
    };
    let mut slices: Vec<libc::iovec> = payloads
        .iter()
        .map(|payload| libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = slices
        .iter_mut()
        .map(|slice| {
            // SAFETY: an mmsghdr of zeros is a valid, empty one.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            message.msg_hdr.msg_name = (&raw mut address).cast();
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            message.msg_hdr.msg_iov = slice;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    watch.spin(start_ns);
    // SAFETY: the count is that of the messages; each points to the address, a slice and a payload, which live through
    // the call.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), messages.len() as libc::c_uint, 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let after_ns = now_ns();
    watch.reads(after_ns);
    Ok(vec![after_ns; payloads.len()])
}
