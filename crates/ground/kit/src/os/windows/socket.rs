//! What a socket tells and takes beside its bytes.

use std::io;
use std::mem::size_of;
use std::os::windows::io::AsRawSocket as _;
use std::time::Duration;

use windows_sys::Win32::Networking::WinSock::{
    FIONREAD, IPPROTO_TCP, SOCKET, TCP_MAXRT, WSAENOPROTOOPT, ioctlsocket, setsockopt,
};

pub use std::os::windows::io::AsSocket;

fn raw(socket: &impl AsSocket) -> SOCKET {
    // A handle has as many bits as a pointer.
    socket.as_socket().as_raw_socket() as SOCKET
}

pub(crate) fn arrived_bytes(socket: &impl AsSocket) -> usize {
    let mut bytes = 0;
    // SAFETY: the socket is open, and the call writes a number.
    let failed = unsafe { ioctlsocket(raw(socket), FIONREAD, &raw mut bytes) };
    if failed == 0 { usize::try_from(bytes).unwrap_or(usize::MAX) } else { 0 }
}

/// Windows does not tell.
pub(crate) fn unacknowledged_bytes(_socket: &impl AsSocket) -> u64 {
    0
}

/// In whole seconds: how long data is sent again. Where this cannot be chosen, as in Wine, the system's own limit stays.
pub(crate) fn set_unacknowledged_max(socket: &impl AsSocket, limit: Duration) -> io::Result<()> {
    let seconds = u32::try_from(limit.as_secs().max(1)).unwrap_or(u32::MAX);
    let (value, len) = ((&raw const seconds).cast(), size_of::<u32>() as i32);
    // SAFETY: the socket is open, and the call reads `len` bytes, those of the number.
    let failed = unsafe { setsockopt(raw(socket), IPPROTO_TCP, TCP_MAXRT, value, len) };
    if failed == 0 {
        return Ok(());
    }
    // The error of a socket is the thread's last error, too.
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(WSAENOPROTOOPT) => Ok(()),
        error => Err(error),
    }
}

/// There is no choice for one connection, and no pacing.
pub(crate) fn do_not_pace(_socket: &impl AsSocket) -> io::Result<()> {
    Ok(())
}
