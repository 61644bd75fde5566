//! Taking a writer's leases, and holding them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cheetah_device::DynDevice;
use cheetah_error::{Error, Result, next};
use cheetah_redundancy::engine::newest_of_writer;
use cheetah_redundancy::{DynLink, MemberState, Members};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::confirmation::Confirmed;
use super::ended::has_left;
use super::environment::Keeper;
use super::map::DriveMap;
use super::shared::{Former, Shared};
use super::votes::votes;
use crate::file::set::DriveSet;
use crate::lease::Fence;
use crate::node::open::NodeAccess;
use crate::node::trouble::{self, Trouble};

/// A writer's leases, and the changes that it makes under them.
pub(crate) struct Holder {
    shared: Arc<Shared>,
    renewal: JoinHandle<()>,
    /// Why there is no lease at a node, by index.
    without_lease: Vec<Option<Trouble>>,
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
        let shared = Arc::new(Shared::new(set, map, access, fence)?);
        let mut without_lease: Vec<Option<Trouble>> = vec![None; map.nodes.len()];
        for (index, member) in map.map.members.iter().enumerate() {
            if member.state == MemberState::Stale {
                continue;
            }
            match shared.acquire_at(&map.nodes[index], force).await {
                Ok(token) => shared.places.lock()[index].token = token,
                Err(error) if error.is_conflict() => {
                    shared.release().await;
                    return Err(Error::failed(format!("{} has a writer already ({error})", set.drive.name))
                        .next(next::Lease::ForceLease));
                }
                Err(error) => {
                    let trouble = Trouble::of_call(&map.nodes[index].name, &error);
                    tracing::debug!("no lease: {trouble}");
                    without_lease[index] = Some(trouble);
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
                "{}: only {count} of its {} nodes grant the write lease, too few to be sure that no other writer has it: {}",
                set.drive.name,
                map.nodes.len(),
                trouble::reasons(&troubles)
            ))
            .advise(trouble::steps(&troubles))
            .next(next::Lease::BringBackOrForceLease));
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
        self.without_lease[member].clone().map(Error::from)
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
    /// Takes the leases at nodes that members have left by this map. Its writer may have died before enough of them had it:
    /// then readers may have the map before, and the next map must be decided by the nodes of that one, too.
    pub(super) async fn take_former(&self, map: &DriveMap, force: bool) {
        for (member, node) in map.former.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|node| node.http.is_some()) else { continue };
            if has_left(node, &self.access.session).await {
                continue;
            }
            let token = self.acquire_at(node, force).await.ok().flatten();
            self.places.lock()[member].former = Some(Former { node: node.clone(), token, until: 0 });
            self.stored_nodes.lock()[member] = node.clone();
        }
    }
}
