//! What a socket tells and takes beside its bytes.

use std::io;
use std::time::Duration;

use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::sockopt::{set_tcp_congestion, set_tcp_user_timeout};

pub use std::os::fd::AsFd as AsSocket;

/// `SIOCOUTQ` (linux/sockios.h): the bytes that the peer's kernel has not acknowledged.
const SIOCOUTQ: Opcode = 0x5411;

pub(crate) fn arrived_bytes(socket: &impl AsSocket) -> usize {
    rustix::io::ioctl_fionread(socket).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

pub(crate) fn unacknowledged_bytes(socket: &impl AsSocket) -> u64 {
    // SAFETY: SIOCOUTQ writes an int.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) };
    bytes.ok().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0)
}

pub(crate) fn set_unacknowledged_max(socket: &impl AsSocket, limit: Duration) -> io::Result<()> {
    Ok(set_tcp_user_timeout(socket, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX))?)
}

pub(crate) fn do_not_pace(socket: &impl AsSocket) -> io::Result<()> {
    Ok(set_tcp_congestion(socket, "cubic")?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_that_the_peer_has_not_read_are_unacknowledged() {
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(unacknowledged_bytes(&near), 0);
        (&near).write_all(&[0; 5000]).unwrap();
        assert!(unacknowledged_bytes(&near) >= 5000);
        assert_eq!(arrived_bytes(&far), 5000);
    }
}
