//! What a socket tells and takes beside its bytes.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use super::checked;

pub use std::os::fd::AsFd as AsSocket;

/// The option with the seconds after which a connection ends whose data is not acknowledged: `TCP_MAXUNACKTIME`, from FreeBSD 14 on.
#[cfg(target_os = "freebsd")]
const UNACKNOWLEDGED_S_MAX: c_int = libc::TCP_MAXUNACKTIME;
/// The same: `TCP_RXT_CONNDROPTIME` (netinet/tcp.h).
#[cfg(target_os = "macos")]
const UNACKNOWLEDGED_S_MAX: c_int = 0x80;

pub(crate) fn arrived_bytes(socket: &impl AsSocket) -> usize {
    rustix::io::ioctl_fionread(socket).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// What is in the queue of the socket, which keeps bytes until they are acknowledged.
#[cfg(target_os = "freebsd")]
pub(crate) fn unacknowledged_bytes(socket: &impl AsSocket) -> u64 {
    let mut bytes: c_int = 0;
    // SAFETY: FIONWRITE writes an int.
    let asked = checked(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::FIONWRITE, &raw mut bytes) });
    asked.map_or(0, |()| u64::try_from(bytes).unwrap_or(0))
}

/// What is in the queue of the socket, which keeps bytes until they are acknowledged.
#[cfg(target_os = "macos")]
pub(crate) fn unacknowledged_bytes(socket: &impl AsSocket) -> u64 {
    let mut bytes: c_int = 0;
    let (socket, mut len) = (socket.as_fd().as_raw_fd(), LEN);
    // SAFETY: the call writes at most `len` bytes, those of an int, and how many it wrote.
    let asked = checked(unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_NWRITE, (&raw mut bytes).cast(), &raw mut len)
    });
    asked.map_or(0, |()| u64::try_from(bytes).unwrap_or(0))
}

/// The bytes of an option that is an int.
const LEN: libc::socklen_t = size_of::<c_int>() as libc::socklen_t;

/// In whole seconds. Where the system has no such option, its own limit stays.
pub(crate) fn set_unacknowledged_max(socket: &impl AsSocket, limit: Duration) -> io::Result<()> {
    let seconds = c_int::try_from(limit.as_secs().max(1)).unwrap_or(c_int::MAX);
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the call reads an int.
    let set = checked(unsafe {
        libc::setsockopt(socket, libc::IPPROTO_TCP, UNACKNOWLEDGED_S_MAX, (&raw const seconds).cast(), LEN)
    });
    match set {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        set => set,
    }
}

/// Nothing is paced.
pub(crate) fn do_not_pace(_socket: &impl AsSocket) -> io::Result<()> {
    Ok(())
}
