//! Whether the process that held a part of a drive has certainly ended, so that nobody can read from it any more.

use std::io::ErrorKind;

use cheetah_nbd::Address;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::file::SetNode;
use crate::node::export::NodeExport;
use crate::session::Session;
use crate::timing::ENDED_TIMEOUT;

/// Whether a node's process has ended: its machine refuses connections at both of its ports, or another instance runs there.
/// A node that does not answer may be cut off, and does not count as ended. A firewall that refuses connections on behalf of a
/// machine gives a wrong result.
pub(crate) async fn has_ended(node: &SetNode, session: &Session) -> bool {
    timeout(session.timeout, look(node, session)).await.unwrap_or(false)
}

/// Whether nobody can read a drive's part from a node any more: its process has ended, or it has freed the part.
pub(crate) async fn has_left(node: &SetNode, session: &Session) -> bool {
    let Some(export) = NodeExport::of(node, session) else { return false };
    match export.control.status().await {
        Ok(status) => {
            Some(&status.instance) != node.instance.as_ref()
                || !status.exports.iter().any(|found| found.name == export.name)
        }
        Err(_) => has_ended(node, &session.within(ENDED_TIMEOUT)).await,
    }
}

fn is_refused(connected: &std::io::Result<TcpStream>) -> bool {
    connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

async fn look(node: &SetNode, session: &Session) -> bool {
    let nbd = match node.uri().map(|uri| uri.address) {
        Some(Address::Tcp { host, port }) => Some((host, port)),
        _ => None,
    };
    let Some(http) = &node.http else {
        return match nbd {
            Some(nbd) => is_refused(&TcpStream::connect(nbd).await),
            None => false,
        };
    };
    match TcpStream::connect(http).await {
        // A process has two ports, and something else may be in the way of one of them.
        refused if is_refused(&refused) => match nbd {
            Some(nbd) => is_refused(&TcpStream::connect(nbd).await),
            None => true,
        },
        Err(_) => false,
        Ok(_) => match NodeExport::of(node, session) {
            Some(export) => export.control.status().await.is_ok_and(|status| Some(status.instance) != node.instance),
            None => false,
        },
    }
}
