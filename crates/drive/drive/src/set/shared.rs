//! The state of a writer: its leases at the nodes, and its connections to them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use cheetah_error::{Error, Result};
use cheetah_kit::random;
use cheetah_redundancy::Members;
use cheetah_redundancy::engine::{Epoch, newest_of_writer};
use parking_lot::Mutex;

use super::confirmation::Confirmation;
use super::lineage::Ancestor;
use super::map::DriveMap;
use super::stores::Stores;
use crate::file::set::DriveSet;
use crate::file::{DriveFile, SetNode};
use crate::lease::Fence;
use crate::node::export::{KeptExports, NodeExport};
use crate::node::open::NodeAccess;
use crate::session::Session;

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
    pub(super) has_warned_of_divergence: AtomicBool,
    /// The set, with the drive file as last saved.
    pub(super) set: Mutex<DriveSet>,
    pub(super) places: Mutex<Vec<Place>>,
    pub(super) members: OnceLock<Weak<Members>>,
    /// Why the drive file, which has no vote, lacks the map that was stored last.
    pub(super) file_is_behind: Mutex<Option<Error>>,
    /// The nodes of the last map that was stored both at the nodes and in the drive file.
    pub(super) stored_nodes: Mutex<Vec<SetNode>>,
    pub(super) stores: Stores,
    /// The newest epoch that is stored at a deciding set of nodes, and perhaps in the drive file.
    pub(super) stored_epoch: AtomicU64,
    /// The attempts to store a map that have failed since the last one that did not.
    pub(super) failed_stores: AtomicU32,
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

impl Shared {
    /// The state before any lease is taken. `fence` is raised when another writer takes the set over.
    pub fn new(set: &DriveSet, map: &DriveMap, access: NodeAccess, fence: Arc<Fence>) -> Result<Self> {
        let place =
            |node: &SetNode| Place { node: node.clone(), token: None, unconfirmed: None, former: None, incoming: None };
        let id = random::id()?;
        Ok(Self {
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
            failed_stores: AtomicU32::new(0),
            exports: KeptExports::default(),
            confirmation: Arc::new(Confirmation::new(fence.clone())),
            fence,
            access,
            refetching: AtomicBool::new(map.refetching),
            is_released: AtomicBool::new(false),
        })
    }

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

    /// What nodes are called with.
    pub fn session(&self) -> &Session {
        &self.access.session
    }

    /// Changes the drive file.
    pub fn update_file(&self, change: impl FnOnce(&mut DriveFile)) -> Result<()> {
        self.set.lock().update(change)
    }

    /// Sets whether maps are marked as refetching from now on.
    pub fn set_refetching(&self, is_refetching: bool) {
        self.refetching.store(is_refetching, Ordering::Release);
    }

    /// The export of a node of the set, over a kept connection; `None` for a foreign server.
    pub fn export(&self, node: &SetNode, session: &Session) -> Option<NodeExport> {
        self.exports.of(node, session)
    }

    /// Notes the node that a member is about to move to.
    pub fn moves_to(&self, member: usize, node: SetNode) {
        self.places.lock()[member].incoming = Some(Incoming { node, token: None });
    }

    /// Whether another writer has taken the drive over.
    pub fn is_fenced(&self) -> bool {
        self.fence.is_up()
    }

    /// Gives a member's place to the node that it moves to.
    pub(super) fn moved(&self, member: usize, until: Epoch) {
        let place = &mut self.places.lock()[member];
        let Some(Incoming { node, token }) = place.incoming.take() else { return };
        let former = Former { node: std::mem::replace(&mut place.node, node), token: place.token.take(), until };
        (place.token, place.unconfirmed, place.former) = (token, None, Some(former));
    }

    /// The map of this writer now.
    pub(super) fn own_map(&self) -> Option<DriveMap> {
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
