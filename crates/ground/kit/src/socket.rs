//! What a socket tells and takes beside its bytes.

use std::io;
use std::time::Duration;

use crate::os;

pub use crate::os::socket::AsSocket;

/// The number of bytes in a socket's receive queue. An error is left to the next call that receives.
pub fn arrived_bytes(socket: &impl AsSocket) -> usize {
    os::socket::arrived_bytes(socket)
}

/// Bytes that a socket took, and that the peer's kernel has not acknowledged; 0 if the system cannot tell.
pub fn unacknowledged_bytes(socket: &impl AsSocket) -> u64 {
    os::socket::unacknowledged_bytes(socket)
}

/// Ends a TCP connection on which sent data stays unacknowledged for this long.
///
/// # Errors
///
/// If the system refuses, as for a connection that has ended.
pub fn set_unacknowledged_max(socket: &impl AsSocket, limit: Duration) -> io::Result<()> {
    os::socket::set_unacknowledged_max(socket, limit)
}

/// Chooses a congestion control that does not pace (CUBIC), for a TCP connection within a machine.
///
/// # Errors
///
/// If there is no choice.
pub fn do_not_pace(socket: &impl AsSocket) -> io::Result<()> {
    os::socket::do_not_pace(socket)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn bytes_that_have_arrived_are_counted_until_they_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        set_unacknowledged_max(&near, Duration::from_secs(20)).unwrap();
        assert_eq!((arrived_bytes(&far), unacknowledged_bytes(&near)), (0, 0));
        near.write_all(&[0; 5000]).unwrap();
        let mut bytes = [0; 5000];
        while far.peek(&mut bytes).unwrap() < bytes.len() {
            std::thread::yield_now();
        }
        assert_eq!(arrived_bytes(&far), 5000);
        (&far).read_exact(&mut bytes).unwrap();
        assert_eq!(arrived_bytes(&far), 0);
    }
}
