//! A writer's environment: its leases at the nodes, and its connections to them. Its maps are stored there by
//! a ballot (`ballot.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cheetah_device::DynDevice;
use cheetah_error::{Error, Result};
use cheetah_redundancy::engine::{Epoch, newest_of_writer};
use cheetah_redundancy::{DynLink, Map, MemberState, Members};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::confirmation::{Confirmation, Confirmed};
use super::divergence::{Ancestor, Divergence};
use super::ended::{ENDED_TIMEOUT, has_ended};
use super::leased::{Leased, NodeLink};
use super::map::DriveMap;
use super::stores::Stores;
use super::votes::votes;
use crate::file::set::DriveSet;
use crate::file::{DriveFile, SetNode};
use crate::lease::Fence;
use crate::node::export::KeptExports;
use crate::node::open::{NodeAccess, connect_node};
use crate::node::trouble::{self, Trouble};
use crate::random_id::random_id;

/// How long a node may take to return its count of bytes read: resynchronization waits for it.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// A writer's leases, and the changes that it makes under them.
pub(crate) struct Holder {
    shared: Arc<Shared>,
    renewal: JoinHandle<()>,
    /// Why there is no lease at a node, by index.
    without_lease: Vec<Option<Trouble>>,
}

/// The state of a writer's leases and connections, shared with its tasks.
pub(crate) struct Shared {
    /// A random id, stored in the maps of this writer.
    pub(super) id: String,
    /// The highest epoch that former writers may have used. Later writers, too, begin above it.
    pub(super) former_epochs: AtomicU64,
    /// The writers before this one and this one, as its maps name them.
    pub(super) lineage: Mutex<Vec<Ancestor>>,
    /// Whether nodes that another writer wrote to apart from the others are overwritten: the examiner has decided.
    pub(super) overwrites: AtomicBool,
    has_warned_of_divergence: AtomicBool,
    /// The set, with the drive file as last saved.
    pub(super) set: Mutex<DriveSet>,
    pub(super) places: Mutex<Vec<Place>>,
    pub(super) members: OnceLock<Weak<Members>>,
    /// Why the drive file, which has no vote, lacks the map that was stored last.
    pub(super) file_is_behind: Mutex<Option<String>>,
    /// The nodes of the last map that was stored both at the nodes and in the drive file.
    pub(super) stored_nodes: Mutex<Vec<SetNode>>,
    pub(super) stores: Stores,
    /// The newest epoch that is stored at a deciding set of nodes, and perhaps in the drive file.
    pub(super) stored_epoch: AtomicU64,
    pub(super) exports: KeptExports,
    pub(super) fence: Arc<Fence>,
    pub(super) confirmation: Arc<Confirmation>,
    pub(super) access: NodeAccess,
    /// Maps are marked as refetching: lost ranges are being fetched again.
    pub(super) refetching: AtomicBool,
    /// The leases were released: no further one is taken.
    pub(super) is_released: AtomicBool,
}

/// The place of a member: the node that has it, and the lease there.
#[derive(Clone)]
pub(super) struct Place {
    pub node: SetNode,
    /// The lease at the node, if it is held there.
    pub token: Option<String>,
    /// A lease that may not be used yet: another writer may have changed the drive before it was taken.
    pub unconfirmed: Option<String>,
    /// The node that had the place before, if it was replaced or left.
    pub former: Option<Former>,
    /// The node that the member moves to, or did last.
    pub incoming: Option<Incoming>,
}

/// The node that a member moves to, and the lease there, once it is held.
#[derive(Clone)]
pub(super) struct Incoming {
    pub node: SetNode,
    pub token: Option<String>,
}

/// A node that was replaced or left.
#[derive(Clone)]
pub(super) struct Former {
    pub node: SetNode,
    pub token: Option<String>,
    /// It has the place in maps before this epoch. Such a map may not be stored yet.
    pub until: Epoch,
}

impl Place {
    /// The node that the member moves to in a map with this entry.
    pub(super) fn incoming_in(&self, entry: &cheetah_redundancy::map::Member) -> Option<SetNode> {
        entry.incoming.as_ref().and(self.incoming.as_ref()).map(|incoming| incoming.node.clone())
    }

    /// The node that has this place in a map of this epoch.
    pub(super) fn node_at(&self, epoch: Epoch) -> &SetNode {
        self.former.as_ref().filter(|former| epoch < former.until).map_or(&self.node, |former| &former.node)
    }
}

/// The leases that were taken, and the nodes without one.
pub(crate) struct Taken {
    pub holder: Holder,
    /// The nodes at which the lease is held, by index.
    pub held: Vec<bool>,
}

impl Holder {
    /// Takes the leases at the nodes of the map that are not stale, in order, so that only one of two writers
    /// continues. Nodes that do not answer are left out. With `force`, leases are taken from another writer.
    /// `fence` is raised when another writer takes the set over.
    pub async fn take(
        set: &DriveSet,
        map: &DriveMap,
        force: bool,
        access: NodeAccess,
        fence: Arc<Fence>,
    ) -> Result<Taken> {
        set.drive.check_one_name()?;
        let begun = Instant::now();
        let place =
            |node: &SetNode| Place { node: node.clone(), token: None, unconfirmed: None, former: None, incoming: None };
        let id = random_id()?;
        let shared = Arc::new(Shared {
            lineage: Mutex::new(map.lineage_of_next(&id)),
            overwrites: AtomicBool::new(false),
            has_warned_of_divergence: AtomicBool::new(false),
            id,
            former_epochs: AtomicU64::new(newest_of_writer(map.map.epoch)),
            set: Mutex::new(set.clone()),
            places: Mutex::new(map.nodes.iter().map(place).collect()),
            members: OnceLock::new(),
            file_is_behind: Mutex::default(),
            stored_nodes: Mutex::new(map.nodes.clone()),
            // Each member's node, and the node that the member left.
            stores: Stores::new(2 * map.nodes.len()),
            stored_epoch: AtomicU64::new(0),
            exports: KeptExports::default(),
            confirmation: Arc::new(Confirmation::new(fence.clone())),
            fence,
            access,
            refetching: AtomicBool::new(map.refetching),
            is_released: AtomicBool::new(false),
        });
        let mut without_lease: Vec<Option<Trouble>> = vec![None; map.nodes.len()];
        for (index, member) in map.map.members.iter().enumerate() {
            if member.state == MemberState::Stale {
                continue;
            }
            match shared.acquire_at(&map.nodes[index], force).await {
                Ok(token) => shared.places.lock()[index].token = token,
                Err(error) if error.is_conflict() => {
                    shared.release().await;
                    return Err(Error::failed(format!(
                        "{} has a writer already ({error}); wait for it to end, open the drive read-only, or take it \
                         over with --force-lease",
                        set.drive.name
                    )));
                }
                Err(error) => {
                    let why = trouble::sentence(&map.nodes[index].name, &error);
                    tracing::debug!("no lease: {why}");
                    without_lease[index] = Some(Trouble { fact: error.fact(), why });
                }
            }
        }
        let troubles: Vec<Trouble> = without_lease.iter().flatten().cloned().collect();
        // A member that may not write must not take the drive for lost, not even if it uses force.
        if let Some(refusal) = trouble::refusal(&set.drive.name, &troubles, map.nodes.len()) {
            shared.release().await;
            return Err(refusal);
        }
        shared.take_former(map, force).await;
        let held: Vec<bool> = shared.places.lock().iter().map(|place| place.token.is_some()).collect();
        let count = held.iter().filter(|held| **held).count();
        let decides = votes(&map.nodes, set.losses_max()).decide(count, true);
        if !force && !decides {
            shared.release().await;
            return Err(Error::failed(format!(
                "{}: only {count} of its {} nodes grant the write lease, too few to be sure that no other writer has it: \
                 {}; bring nodes back, or use --force-lease if you know that nobody writes to it",
                set.drive.name,
                map.nodes.len(),
                trouble::reasons(&troubles)
            )));
        }
        if decides {
            shared.confirmation.confirmed(begun);
        } else {
            shared.confirmation.assume();
        }
        let renewal = tokio::spawn(shared.clone().keep_leases());
        Ok(Taken { holder: Self { shared, renewal, without_lease }, held })
    }

    /// The fence.
    pub fn fence(&self) -> Arc<Fence> {
        self.shared.fence.clone()
    }

    /// Why there was no lease at a member's node when the leases were taken.
    pub fn no_lease(&self, member: usize) -> Option<Error> {
        let Trouble { fact, why } = self.without_lease[member].clone()?;
        Some(fact.map_or_else(|| Error::failed(why.clone()), |fact| Error::node(fact, why.clone())))
    }

    /// The environment of the recovery engine.
    pub fn environment(&self) -> Arc<dyn cheetah_redundancy::Environment> {
        Arc::new(Keeper(self.shared.clone()))
    }

    /// Connects to a node under the lease that is held there.
    pub async fn connect(&self, member: usize) -> Result<DynLink> {
        self.shared.connect(member).await
    }

    /// Has this writer overwrite what another one wrote to nodes apart from the others.
    pub fn overwrite(&self) {
        self.shared.overwrites.store(true, Ordering::Release);
    }

    /// Records the map by which the drive is opened, and the members, whose connections are renewed with
    /// the leases.
    pub fn opened(&self, map: &DriveMap, members: &Arc<Members>) {
        self.shared.former_epochs.store(newest_of_writer(map.map.epoch), Ordering::Release);
        *self.shared.lineage.lock() = map.lineage_of_next(&self.shared.id);
        self.shared.members.set(Arc::downgrade(members)).ok();
    }

    /// The drive, which is read only while the leases are relied on.
    pub fn confirmed(&self, drive: DynDevice) -> DynDevice {
        Arc::new(Confirmed::new(drive, self.shared.confirmation.clone()))
    }

    /// The leases and connections, for a task that outlives a borrow of the holder.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Releases all leases.
    pub async fn release(self) {
        self.renewal.abort();
        self.shared.release().await;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Shared {
    /// The node that has a member's place.
    pub fn node(&self, member: usize) -> SetNode {
        self.places.lock()[member].node.clone()
    }

    /// The nodes that have the members' places, in order.
    pub fn nodes(&self) -> Vec<SetNode> {
        self.places.lock().iter().map(|place| place.node.clone()).collect()
    }

    /// The lease that this writer had at a node that it replaced or left, or did not move to after all.
    pub fn former_token(&self, nbd: &str) -> Option<String> {
        let places = self.places.lock();
        if let Some(incoming) = places.iter().filter_map(|place| place.incoming.as_ref()).find(|to| to.node.nbd == nbd)
        {
            return incoming.token.clone();
        }
        let former = places.iter().filter_map(|place| place.former.as_ref()).find(|former| former.node.nbd == nbd)?;
        former.token.clone()
    }

    /// The set, with the drive file as it was last saved by this writer.
    pub fn set(&self) -> DriveSet {
        self.set.lock().clone()
    }

    /// The drive's name.
    pub fn drive_name(&self) -> String {
        self.set.lock().drive.name.clone()
    }

    /// The number of the set's nodes that may be lost.
    pub fn losses_max(&self) -> usize {
        self.set.lock().losses_max()
    }

    /// The drive file as it is now; other processes may have changed it.
    pub fn newest_file(&self) -> DriveFile {
        let known = self.set().drive;
        DriveFile::load(&known.path).ok().filter(|found| found.id == known.id).unwrap_or(known)
    }

    /// The spares that the drive file names now.
    pub fn newest_spares(&self) -> Vec<String> {
        self.newest_file().spares
    }

    /// How long a node may take to answer.
    pub fn timeout(&self) -> Duration {
        self.access.timeout
    }

    /// Changes the drive file.
    pub fn update_file(&self, change: impl FnOnce(&mut DriveFile)) -> Result<()> {
        self.set.lock().update(change)
    }

    /// Sets whether maps are marked as refetching from now on.
    pub fn set_refetching(&self, is_refetching: bool) {
        self.refetching.store(is_refetching, Ordering::Release);
    }

    /// Whether another writer has taken the drive over.
    pub fn is_fenced(&self) -> bool {
        self.fence.is_up()
    }

    pub(super) async fn connect(self: &Arc<Self>, member: usize) -> Result<DynLink> {
        let Place { node, token, .. } = self.places.lock()[member].clone();
        if token.is_none() && node.http.is_some() {
            return Err(Error::failed(format!("node {}: no lease is held there", node.name)));
        }
        self.connect_to(member, &node, token).await
    }

    pub(super) async fn connect_to(
        self: &Arc<Self>,
        member: usize,
        node: &SetNode,
        token: Option<String>,
    ) -> Result<DynLink> {
        let (client, device) = connect_node(node, token.as_deref(), &self.access).await?;
        let leased =
            Leased { inner: device, shared: Arc::downgrade(self), member, token, node: node.name.as_str().into() };
        Ok(Arc::new(NodeLink { client, device: Arc::new(leased) }))
    }

    /// Puts an empty node in the place of a member, under a lease of its own.
    pub async fn replace(self: &Arc<Self>, members: &Arc<Members>, member: usize, node: SetNode) -> Result<()> {
        let why = |error: &dyn std::fmt::Display| Error::failed(format!("node {}: {error}", node.name));
        let token = self.acquire_at(&node, false).await.map_err(|error| why(&error))?;
        let link = self.connect_to(member, &node, token.clone()).await?;
        let taken = |until: Epoch| {
            let place = &mut self.places.lock()[member];
            let former = Former { node: place.node.clone(), token: place.token.take(), until };
            *place = Place { node: node.clone(), token, unconfirmed: None, former: Some(former), incoming: None };
        };
        members.replace(member, link, taken).await.map_err(|error| why(&error))
    }

    /// Gives a member's place to the node that it moves to.
    fn moved(&self, member: usize, until: Epoch) {
        let place = &mut self.places.lock()[member];
        let Some(Incoming { node, token }) = place.incoming.take() else { return };
        let former = Former { node: std::mem::replace(&mut place.node, node), token: place.token.take(), until };
        (place.token, place.unconfirmed, place.former) = (token, None, Some(former));
    }

    /// Fails if another writer wrote to a node that comes back, apart from this one: resynchronizing it would lose those
    /// writes.
    pub(super) async fn refuse_diverged(&self, node: &SetNode) -> std::result::Result<(), String> {
        if self.overwrites.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(stored) = self.stored_map(node).await? else { return Ok(()) };
        let set = self.set();
        let Some(own) = self.own_map() else { return Ok(()) };
        match Divergence::among(&own, [&stored]) {
            None => Ok(()),
            Some(divergence) => {
                let why = divergence.refusal(&set).to_string();
                if !self.has_warned_of_divergence.swap(true, Ordering::Relaxed) {
                    tracing::warn!("{why}");
                }
                Err(why)
            }
        }
    }

    /// The map at a node, if it has one.
    async fn stored_map(&self, node: &SetNode) -> std::result::Result<Option<DriveMap>, String> {
        let Some(export) = self.exports.of(node, self.access.timeout) else { return Ok(None) };
        match export.control.map(&export.name).await {
            Ok(stored) => stored.map(|stored| DriveMap::parse(&stored.map, &self.set())).transpose(),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The map of this writer now.
    fn own_map(&self) -> Option<DriveMap> {
        let map = self.members.get()?.upgrade()?.map()?;
        let nodes = self.nodes();
        let none = || vec![None; nodes.len()];
        let mut lineage = self.lineage.lock().clone();
        // Before its first change, a writer has the map of the one before.
        if map.epoch <= self.former_epochs.load(Ordering::Acquire) {
            lineage.pop();
        }
        let writer = lineage.last().map_or_else(String::new, |last| last.writer.clone());
        Some(DriveMap { map, incoming: none(), former: none(), nodes, refetching: false, writer, lineage })
    }
}

/// The environment of the engine.
struct Keeper(Arc<Shared>);

impl cheetah_redundancy::Environment for Keeper {
    fn store(&self, map: Map) -> BoxFuture<'_, std::result::Result<(), String>> {
        Box::pin(self.0.store(map))
    }

    fn reconnect(&self, member: usize) -> BoxFuture<'_, std::result::Result<DynLink, String>> {
        Box::pin(async move {
            let node = self.0.node(member);
            if node.http.is_none() {
                return Err("it is no Cheetah node: what it missed cannot be known".into());
            }
            self.0.acquire(member).await?;
            self.0.refuse_diverged(&node).await?;
            self.0.connect(member).await.map_err(|error| error.to_string())
        })
    }

    fn read_bytes(&self, member: usize) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async move {
            let export = self.0.exports.of(&self.0.node(member), BUSY_TIMEOUT)?;
            let status = export.control.status().await.ok()?;
            status.exports.into_iter().find(|found| found.name == export.name).map(|own| own.read_bytes)
        })
    }

    fn moved(&self, member: usize, epoch: Epoch) {
        self.0.moved(member, epoch);
    }

    fn is_gone(&self, member: usize) -> BoxFuture<'_, bool> {
        Box::pin(async move { has_ended(&self.0.node(member), ENDED_TIMEOUT).await })
    }
}
