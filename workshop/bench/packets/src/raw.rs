//! Raw IP sockets: packets with headers of this program, which the kernel sends as they are.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The IP header, and the longest transport header that is sent: TCP without options.
const IP_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// The transport header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP, with the flag ACK.
    Tcp,
    /// UDP.
    Udp,
}

/// A socket that sends to one address.
pub struct RawSocket {
    socket: OwnedFd,
    to: libc::sockaddr_in,
}

impl RawSocket {
    /// Opens it. Needs CAP_NET_RAW.
    pub fn open(to: SocketAddrV4) -> io::Result<Self> {
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
        Ok(Self { socket, to: address })
    }

    /// Sends one packet, which [`packet`] made.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let (address, length) = ((&raw const self.to).cast(), size_of::<libc::sockaddr_in>() as libc::socklen_t);
        // SAFETY: the packet and the address live through the call, and their sizes are passed.
        let sent =
            unsafe { libc::sendto(self.socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0, address, length) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Returns an IP packet of `ip_bytes` bytes, or of the headers if they are longer: a transport header of ports only, and
/// zeros. The kernel adds length, identifier and checksum, and the source address if `from` is unspecified.
pub fn packet(transport: Transport, to: SocketAddrV4, from: Ipv4Addr, ip_bytes: usize) -> Vec<u8> {
    let (protocol, header_bytes) = match transport {
        Transport::Tcp => (libc::IPPROTO_TCP, TCP_BYTES),
        Transport::Udp => (libc::IPPROTO_UDP, UDP_BYTES),
    };
    let mut packet = vec![0; ip_bytes.max(IP_BYTES + header_bytes)];
    let udp_bytes = (packet.len() - IP_BYTES) as u16;
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = protocol as u8;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    packet[20..22].copy_from_slice(&(to.port() ^ 1).to_be_bytes());
    packet[22..24].copy_from_slice(&to.port().to_be_bytes());
    match transport {
        // A header of five words, and the flag ACK.
        Transport::Tcp => packet[32..34].copy_from_slice(&[0x50, 0x10]),
        Transport::Udp => packet[24..26].copy_from_slice(&udp_bytes.to_be_bytes()),
    }
    packet
}
