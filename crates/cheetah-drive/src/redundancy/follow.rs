//! A reader that follows the map: nodes go stale, come back, and are replaced while it reads.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cheetah_redundancy::{DynLink, MemberState, Members};
use futures::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::environment::NodeLink;
use super::map::DriveMap;
use super::newest::newest;
use crate::file::DriveFile;
use crate::node::open::{NodeAccess, connect_node};

/// How often a reader looks for a newer map. A node that a writer recorded as stale may be read for this long, and no longer.
const POLL: Duration = Duration::from_secs(1);

/// Looks for newer maps until dropped.
pub(crate) struct Follower {
    task: JoinHandle<()>,
}

impl Follower {
    /// Keeps `members` up to date with the drive's map; `map` is the one that they were opened with.
    pub fn start(file: DriveFile, map: DriveMap, access: NodeAccess, members: &Arc<Members>) -> Self {
        let members = Arc::downgrade(members);
        Self { task: tokio::spawn(follow(file, map, access, members)) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(mut file: DriveFile, mut known: DriveMap, access: NodeAccess, members: Weak<Members>) {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let found = match newest(&file, access.timeout).await {
            Ok(found) => found.map,
            Err(error) => {
                tracing::debug!("looking for a newer map: {error}");
                continue;
            }
        };
        let Some(members) = members.upgrade() else { return };
        // While ranges are fetched again, the former nodes still hold their parts.
        if found.map.epoch < known.map.epoch || found.refetching {
            continue;
        }
        let moved: Vec<usize> = (0..found.nodes.len())
            .filter(|index| {
                let (now, before) = (&found.nodes[*index], &known.nodes[*index]);
                now.nbd != before.nbd || now.instance != before.instance || !members.is_connected(*index)
            })
            .collect();
        let links = join_all(moved.into_iter().map(|index| {
            let (node, state) = (&found.nodes[index], found.map.members[index].state);
            async move {
                let link = match state {
                    MemberState::InSync => connect_node(node, None, &access).await.ok(),
                    MemberState::Syncing | MemberState::Stale => None,
                };
                (index, link.map(|(client, device)| Arc::new(NodeLink { client, device }) as DynLink))
            }
        }))
        .await;
        // States and connections at once: a member is never read by the state of the node that was there before.
        members.follow(&found.map, links);
        found.update(&mut file);
        known = found;
    }
}
