//! Whether anyone uses a drive: what must not be before it is enlarged or destroyed.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::file::DriveFile;
use crate::status::{NodeStatus, node_statuses};
use cheetah_image::error::{Error, Result, list};

/// A reader that has just closed may still be counted: so long a node has to notice.
const GRACE: Duration = Duration::from_secs(2);
/// How often to look meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How the drive's nodes are, once nobody uses it; an error that says who does, if that does not change soon.
pub(crate) async fn unused(file: &DriveFile, timeout: Duration) -> Result<Vec<NodeStatus>> {
    let until = Instant::now() + GRACE;
    loop {
        let nodes = node_statuses(file, timeout).await;
        let users: Vec<_> = nodes.iter().filter_map(user).collect();
        if users.is_empty() {
            return Ok(nodes);
        }
        let writer = nodes.iter().any(|node| node.writer.is_some());
        if writer || Instant::now() >= until {
            let (name, users) = (&file.name, list(&users));
            return Err(Error::failed(format!("{name} is in use: {users}; unmount and close it everywhere first")));
        }
        sleep(LOOK_AGAIN).await;
    }
}

fn user(node: &NodeStatus) -> Option<String> {
    match (&node.writer, node.connections) {
        (Some(writer), _) => Some(format!("{} is written to by {writer}", node.node)),
        (None, Some(open)) if open > 0 => Some(format!("{} has {open} connections open", node.node)),
        _ => None,
    }
}
