//! Whether the process that held a part of a drive has certainly ended, so that nobody can read from it any more.

use std::io::ErrorKind;
use std::time::Duration;

use cheetah_nbd::Address;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::file::SetNode;
use crate::node::export::NodeExport;

/// The time-out of this test: less than a write waits for the end of readers' leases.
pub(crate) const ENDED_TIMEOUT: Duration = Duration::from_millis(250);

/// Whether a node's process has ended: its machine refuses connections, or another instance runs there. A node that
/// does not answer may be cut off, and does not count as ended. A firewall that refuses connections on behalf of a
/// machine gives a wrong result.
pub(crate) async fn has_ended(node: &SetNode, patience: Duration) -> bool {
    timeout(patience, look(node, patience)).await.unwrap_or(false)
}

async fn look(node: &SetNode, patience: Duration) -> bool {
    let connected = match (&node.http, node.uri().map(|uri| uri.address)) {
        (Some(http), _) => TcpStream::connect(http).await,
        (None, Some(Address::Tcp { host, port })) => TcpStream::connect((host, port)).await,
        (None, _) => return false,
    };
    match connected {
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(_) => match NodeExport::of(node, patience) {
            Some(export) => export.control.status().await.is_ok_and(|status| Some(status.instance) != node.instance),
            None => false,
        },
    }
}
