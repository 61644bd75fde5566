//! Options and errors of ordinary sockets.

use std::io;
use std::net::UdpSocket;

/// `WSAEINPROGRESS` and `WSAEMSGSIZE` of Windows Sockets, for which `std` has no kinds.
#[cfg(windows)]
const IN_PROGRESS: i32 = 10_036;
#[cfg(windows)]
const TOO_LARGE: i32 = 10_040;
/// `EINPROGRESS` and `EMSGSIZE` of FreeBSD and macOS (errno(2)).
#[cfg(unix)]
const IN_PROGRESS: i32 = 36;
#[cfg(unix)]
const TOO_LARGE: i32 = 40;

/// Has the kernel stamp what arrives: it does not.
pub(crate) const fn stamp(_socket: &UdpSocket) -> bool {
    false
}

/// Receives a packet: returns its length. The kernel stamps none.
pub(crate) async fn receive(socket: &tokio::net::UdpSocket, packet: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    socket.recv(packet).await.map(|bytes| (bytes, None))
}

/// Has packets that are too large for the path refused rather than fragmented. Here they are fragmented, which the far end
/// does not see: sizes up to 1500 bytes are usual, and a path that fragments them has a lower capacity for that reason.
pub(crate) const fn refuse_fragments(_socket: &UdpSocket, _is_ipv4: bool) -> io::Result<()> {
    Ok(())
}

/// Whether a packet was refused because it is too large for the interface or the path.
pub(crate) fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(TOO_LARGE)
}

/// Whether a connection was not answered in time.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut || error.raw_os_error() == Some(IN_PROGRESS)
}
