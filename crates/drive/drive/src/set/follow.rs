//! A reader that follows the map: nodes go stale, come back, and are replaced while it reads. Looking at the map renews
//! the read lease, without which it does not read.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cheetah_device::DynDevice;
use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_error::{Error, next};
use cheetah_redundancy::{DynLink, MemberState, Members, ReadLease};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::divergence::agreed;
use super::leased::NodeLink;
use super::map::DriveMap;
use super::newest::newest_soon;
use super::votes::votes;
use crate::file::set::DriveSet;
use crate::file::{DriveFile, SetNode};
use crate::node::export::KeptExports;
use crate::node::open::{NodeAccess, connect_node};

/// How long a node may take to answer a look.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before a node that could not be connected to is tried again.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Looks for newer maps until dropped.
pub(crate) struct Follower {
    task: JoinHandle<()>,
}

impl Follower {
    /// Keeps `members` up to date with the drive's map; `map` is the one that they were opened with.
    pub fn start(
        set: DriveSet,
        map: DriveMap,
        access: NodeAccess,
        members: &Arc<Members>,
        lease: Arc<ReadLease>,
    ) -> Self {
        let (members, exports) = (Arc::downgrade(members), KeptExports::default());
        let follower = Follow { set, known: map, exports, access, members, lease, is_behind: false };
        Self { task: tokio::spawn(follower.run()) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A drive that is read, and whose read lease is renewed as long as this exists.
pub(crate) struct Followed {
    below: DynDevice,
    _follower: Arc<Follower>,
}

impl Followed {
    /// Keeps `follower` at work.
    pub fn new(below: DynDevice, follower: Arc<Follower>) -> Self {
        Self { below, _follower: follower }
    }
}

impl Layer for Followed {
    type Below = DynDevice;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.below
    }
}

struct Follow {
    set: DriveSet,
    known: DriveMap,
    /// Looks use kept connections, because there are ten looks a second.
    exports: KeptExports,
    access: NodeAccess,
    members: Weak<Members>,
    lease: Arc<ReadLease>,
    /// Too few nodes answered the last look. The drive file may name those that took the places of others.
    is_behind: bool,
}

/// The result of a look.
enum Look {
    /// Enough nodes answered.
    Enough(DriveMap),
    /// The newest map that was found, and why there may be a newer one.
    TooFew(Option<DriveMap>, Error),
}

impl Follow {
    async fn run(mut self) {
        let mut connecting = FuturesUnordered::new();
        let mut busy: Vec<Option<SetNode>> = vec![None; self.known.nodes.len()];
        while let Some(members) = self.members.upgrade() {
            for (index, node) in self.unconnected(&members) {
                if !busy[index].as_ref().is_some_and(|other| other.is_same(&node)) {
                    busy[index] = Some(node.clone());
                    connecting.push(connect(index, node, self.access.clone()));
                }
            }
            drop(members);
            let (begun, found) = {
                let look = async {
                    self.lease.due().await;
                    (Instant::now(), self.look().await)
                };
                let mut look = std::pin::pin!(look);
                loop {
                    tokio::select! {
                        found = &mut look => break found,
                        Some((index, node, link)) = connecting.next() => {
                            busy[index].take_if(|other| other.is_same(&node));
                            self.connected(index, &node, link);
                        }
                    }
                }
            };
            self.is_behind = matches!(found, Look::TooFew(..));
            match found {
                Look::Enough(map) => {
                    self.take(map);
                    self.lease.confirmed(begun);
                }
                Look::TooFew(map, why) => {
                    tracing::debug!("looking for a newer map: {why}");
                    map.into_iter().for_each(|map| self.take(map));
                    self.lease.failed(why);
                }
            }
        }
    }

    /// Looks for a newer map.
    async fn look(&self) -> Look {
        let losses_max = self.set.losses_max();
        let has_vote = votes(&self.known.nodes, losses_max).of_file() > 0;
        let is_read = has_vote || self.is_behind;
        let known = &self.set.drive;
        let on_disk = is_read.then(|| DriveFile::load(&known.path).ok().filter(|found| found.id == known.id)).flatten();
        let on_disk = on_disk.and_then(|drive| DriveSet::of(drive, self.set.index));
        let newer = on_disk.as_ref().filter(|found| found.entry().epoch > self.set.entry().epoch);
        let session = self.access.session.within_at_most(LOOK_TIMEOUT);
        let set = newer.unwrap_or(&self.set);
        let found = newest_soon(set, &self.known, &self.exports, &session).await;
        match found.and_then(|found| agreed(set, found.diverged.as_deref()).map(|()| found)) {
            Ok(found) if votes(&found.map.nodes, losses_max).decide(found.heard, on_disk.is_some()) => {
                Look::Enough(found.map)
            }
            Ok(found) => {
                let why = Error::failed(format!(
                    "only {} of {} nodes answer, too few to be sure that these have the last writes",
                    found.heard,
                    found.map.nodes.len()
                ))
                .next(next::Drive::BringBackOrAllowLost);
                Look::TooFew(Some(found.map), why)
            }
            Err(error) => Look::TooFew(None, error),
        }
    }

    /// Applies a map, unless it is older, or lost ranges are being fetched again: until they are restored, the former
    /// nodes still hold their parts.
    fn take(&mut self, map: DriveMap) {
        let Some(members) = self.members.upgrade() else { return };
        if map.map.epoch < self.known.map.epoch || map.refetching {
            return;
        }
        let nodes = map.nodes.iter().zip(&self.known.nodes).enumerate();
        let moved = nodes.filter(|(_, (now, before))| !now.is_same(before)).map(|(index, _)| (index, None)).collect();
        // States and connections change together: a member is never read by the state of the node that had its place
        // before.
        members.follow(&map.map, moved);
        map.update(&mut self.set.drive, self.set.index);
        self.known = map;
    }

    /// The members in sync that have no connection.
    fn unconnected(&self, members: &Members) -> Vec<(usize, SetNode)> {
        let entries = self.known.nodes.iter().zip(&self.known.map.members).enumerate();
        let is_missing =
            |index: usize, state: MemberState| state == MemberState::InSync && !members.is_connected(index);
        let missing = entries.filter(|(index, (_, entry))| is_missing(*index, entry.state));
        missing.map(|(index, (node, _))| (index, node.clone())).collect()
    }

    /// Installs a new connection, unless another node has the place by now.
    fn connected(&self, index: usize, node: &SetNode, link: Option<DynLink>) {
        if let (Some(link), Some(members)) = (link, self.members.upgrade())
            && self.known.nodes[index].is_same(node)
            && !members.is_connected(index)
        {
            members.connect(index, link);
        }
    }
}

/// Connects to a node; a failure takes at least a second.
async fn connect(index: usize, node: SetNode, access: NodeAccess) -> (usize, SetNode, Option<DynLink>) {
    match connect_node(&node, None, &access).await {
        Ok((client, device)) => (index, node, Some(Arc::new(NodeLink { client, device }) as DynLink)),
        Err(error) => {
            tracing::debug!("node {} is still lost: {error}", node.name);
            sleep(CONNECT_PAUSE).await;
            (index, node, None)
        }
    }
}
