//! Options and errors of ordinary sockets.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover};
use tokio::io::Interest;

use super::send::{control, set_option};

/// Has the kernel stamp what arrives; returns whether it does.
pub(crate) fn stamp(socket: &UdpSocket) -> bool {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32).is_ok()
}

/// Receives a packet: returns its length, and when the kernel stamped it, in nanoseconds of the wall clock.
pub(crate) async fn receive(socket: &tokio::net::UdpSocket, packet: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let receive = || control::receive(&socket.as_fd(), libc::MSG_DONTWAIT, packet);
    let beside = socket.async_io(Interest::READABLE, receive).await?;
    Ok((beside.bytes, beside.wall_ns))
}

/// Has packets that are too large for the path refused rather than fragmented.
pub(crate) fn refuse_fragments(socket: &UdpSocket, is_ipv4: bool) -> io::Result<()> {
    match is_ipv4 {
        true => set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?,
        false => set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?,
    }
    Ok(())
}

/// Whether a packet was refused because it is too large for the interface or the path.
pub(crate) fn is_too_large(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}

/// Whether a connection was not answered in time.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut || Errno::from_io_error(error) == Some(Errno::INPROGRESS)
}
