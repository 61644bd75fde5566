//! Ancillary data of packets: send times, timestamps and errors.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

/// Sends one packet with the time it is due at, in nanoseconds of the clock that was set on the socket (`SO_TXTIME`).
pub(super) fn send_at(socket: &impl AsFd, packet: &[u8], time_ns: u64) -> io::Result<()> {
    let mut control = Control([MaybeUninit::zeroed(); 512]);
    let mut vector = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    // SAFETY: the structure is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: it only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u64>() as u32) } as _;
    // SAFETY: there is room for a header and its data, zeroed and aligned, and both are written within it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_TXTIME;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<u64>() as u32) as _;
        libc::CMSG_DATA(header).cast::<u64>().write_unaligned(time_ns);
    }
    // SAFETY: all that the message points to outlives the call, which reads from it only.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The ancillary data of one packet.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Ancillary {
    /// Bytes received.
    pub(crate) bytes: usize,
    /// When the kernel stamped it, in nanoseconds of `CLOCK_REALTIME`.
    pub(crate) wall_ns: Option<u64>,
    /// The error, if it comes from the error queue.
    pub(crate) error: Option<Error>,
    /// Its time to live, or hop limit, on arrival.
    pub(crate) ttl: Option<u8>,
}

/// The content of `struct sock_extended_err`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Error {
    /// `SO_EE_ORIGIN_…`.
    pub(crate) origin: u8,
    /// The ICMP type, or 0.
    pub(crate) kind: u8,
    /// The ICMP code.
    pub(crate) code: u8,
    /// The MTU, or the kind of timestamp.
    pub(crate) info: u32,
    /// The packet's number, counted from when timestamps were requested.
    pub(crate) data: u32,
    /// The sender of the ICMP error.
    pub(crate) from: Option<IpAddr>,
}

/// Room for everything asked for.
#[repr(C, align(16))]
struct Control([MaybeUninit<u8>; 512]);

/// `struct scm_timestamping`: software, unused, hardware.
type Timestamping = [libc::timespec; 3];

/// Receives one packet into `buffer`, from the socket or (`MSG_ERRQUEUE`) its error queue.
pub(crate) fn receive(socket: &impl AsFd, flags: i32, buffer: &mut [u8]) -> io::Result<Ancillary> {
    let mut control = Control([MaybeUninit::uninit(); 512]);
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the structure is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: all that the message points to outlives the call and is as large as it says.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let bytes = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let mut beside = Ancillary { bytes, ..Ancillary::default() };
    // SAFETY: the kernel filled in the control part as far as `msg_controllen` now says.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: it is null or points to a whole header within the control part.
    while let Some(head) = unsafe { header.as_ref() } {
        // SAFETY: data follows the header.
        let data = unsafe { libc::CMSG_DATA(header) };
        // Libraries differ in its type.
        let length: usize = head.cmsg_len as _;
        // SAFETY: likewise, and it is no further from there to the end of data than the length says.
        let length = length.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        // SAFETY: those bytes were filled in by the kernel.
        beside.note(head.cmsg_level, head.cmsg_type, unsafe { std::slice::from_raw_parts(data, length) });
        // SAFETY: the message is the one the header is of.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(beside)
}

impl Ancillary {
    fn note(&mut self, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                self.wall_ns = read::<Timestamping>(data).and_then(|[software, ..]| nanoseconds(software));
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                self.wall_ns = read::<libc::timespec>(data).and_then(nanoseconds)
            }
            (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                self.ttl = read::<i32>(data).and_then(|ttl| u8::try_from(ttl).ok());
            }
            (libc::SOL_IP, libc::IP_RECVERR)
            | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            | (libc::SOL_PACKET, libc::PACKET_TX_TIMESTAMP) => self.error = error(data),
            _ => {}
        }
    }
}

fn error(data: &[u8]) -> Option<Error> {
    let extended = read::<libc::sock_extended_err>(data)?;
    let from = data.get(size_of::<libc::sock_extended_err>()..).and_then(offender);
    let (origin, kind, code) = (extended.ee_origin, extended.ee_type, extended.ee_code);
    Some(Error { origin, kind, code, info: extended.ee_info, data: extended.ee_data, from })
}

/// The address that follows the error: `struct sockaddr_in` or `sockaddr_in6`.
fn offender(data: &[u8]) -> Option<IpAddr> {
    match i32::from(u16::from_ne_bytes(*data.first_chunk()?)) {
        libc::AF_INET => Some(Ipv4Addr::from(*data.get(4..)?.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*data.get(8..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

fn nanoseconds(time: libc::timespec) -> Option<u64> {
    let ns = u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?;
    (ns > 0).then_some(ns)
}

/// A structure of integers at the start of `data`.
fn read<T: Copy + Plain>(data: &[u8]) -> Option<T> {
    // SAFETY: there are that many bytes, any of which make a `T`, and it is read unaligned.
    (data.len() >= size_of::<T>()).then(|| unsafe { data.as_ptr().cast::<T>().read_unaligned() })
}

/// Made of integers only, so that any bytes are a value.
///
/// # Safety
///
/// It has to be.
unsafe trait Plain {}

// SAFETY: integers.
unsafe impl Plain for i32 {}
// SAFETY: integers.
unsafe impl Plain for libc::timespec {}
// SAFETY: integers.
unsafe impl Plain for Timestamping {}
// SAFETY: integers.
unsafe impl Plain for libc::sock_extended_err {}
