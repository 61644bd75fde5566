//! How a TCP connection is to be treated by the kernel.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Dead peers are noticed after about this much silence.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Sets what both ends want.
///
/// Within one machine there is nothing to pace. Where the kernel's default algorithm does, as BBR, it arms a timer for
/// each burst, and setting a timer traps out of a virtual machine.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3))?;
    if stream.peer_addr()?.ip().is_loopback() && socket.set_tcp_congestion(b"cubic").is_err() {
        tracing::debug!("no choice of TCP congestion control: connections within the machine may be slower");
    }
    Ok(())
}
