//! How a TCP connection is to be treated by the kernel.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Dead peers are noticed after about this much silence.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long what was sent may go unacknowledged before a watched connection is given up.
const UNHEARD_MAX: Duration = Duration::from_secs(20);

/// Has the kernel give up a connection whose far end has gone without a word, for an end that cannot do without: it
/// keeps memory or a place for it, or would not call again otherwise. Also keeps its entry in an address translator.
pub(crate) fn watch(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(UNHEARD_MAX / 2).with_interval(UNHEARD_MAX / 4))?;
    socket.set_tcp_user_timeout(Some(UNHEARD_MAX))
}

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
