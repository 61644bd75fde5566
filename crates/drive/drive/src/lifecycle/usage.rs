//! Checking that a drive is not in use, before it is destroyed, or while it gathers nodes.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::file::DriveFile;
use crate::node::health::{NodeStatus, node_statuses};
use crate::refused::Refused;
use crate::session::Session;
use cheetah_error::Result;

/// How long a node may still count a connection that was closed.
const GRACE: Duration = Duration::from_secs(2);
/// The interval at which the nodes are asked meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Waits a little for the drive to be unused, and returns the state of its nodes. The error names the users.
pub(crate) async fn unused(file: &DriveFile, session: &Session) -> Result<Vec<NodeStatus>> {
    let until = Instant::now() + GRACE;
    loop {
        let nodes = node_statuses(file, session).await;
        let users: Vec<_> = nodes.iter().filter_map(user).collect();
        if users.is_empty() {
            return Ok(nodes);
        }
        let writer = nodes.iter().any(|node| node.writer.is_some());
        if writer || Instant::now() >= until {
            return Err(Refused::InUse { drive: file.name.clone(), users }.into());
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Whether a process has the drive open.
pub async fn is_in_use(file: &DriveFile, session: &Session) -> bool {
    node_statuses(file, session).await.iter().any(|node| user(node).is_some())
}

/// The use of a node's part of a drive, as a clause; `None` if it is not in use.
pub(crate) fn user(node: &NodeStatus) -> Option<String> {
    match (&node.writer, node.connections) {
        (Some(writer), _) => Some(format!("{} is written to by {writer}", node.node)),
        (None, Some(open)) if open > 0 => Some(format!("{} has {open} connections open", node.node)),
        _ => None,
    }
}
