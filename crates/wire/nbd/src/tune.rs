//! TCP socket options.

use std::io;
use std::time::Duration;

use cheetah_kit::socket::{AsSocket, do_not_pace, set_unacknowledged_max};
use socket2::{SockRef, TcpKeepalive};

/// The keepalive time.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long sent data may stay unacknowledged on a watched connection.
const UNHEARD_MAX: Duration = Duration::from_secs(20);

/// Makes the kernel give up soon on a connection whose peer has vanished, for ends that hold memory or a place for it, or
/// that would not reconnect otherwise. Also keeps its entry in a NAT alive.
pub(crate) fn watch(stream: &impl AsSocket) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(UNHEARD_MAX / 2).with_interval(UNHEARD_MAX / 4))?;
    set_unacknowledged_max(stream, UNHEARD_MAX)
}

/// Sets the options that both ends use.
///
/// On loopback, congestion control is CUBIC: a pacing algorithm such as BBR arms a timer for each burst, which traps out of
/// a virtual machine.
pub(crate) fn tune(stream: &impl AsSocket) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3))?;
    let here = socket.peer_addr()?.as_socket().is_some_and(|peer| peer.ip().is_loopback());
    if here && do_not_pace(stream).is_err() {
        tracing::debug!("no choice of TCP congestion control: connections within the machine may be slower");
    }
    Ok(())
}
