//! Opening a set with redundancy.

use std::sync::Arc;

use cheetah_device::DynDevice;
use cheetah_error::{Error, Fact, Next, Result, next};
use cheetah_redundancy::{ArrayPlace, DynLink, Engine, MemberState, Members, ReadLease, Redundant};
use futures::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::ended::has_ended;
use super::follow::{Followed, Follower};
use super::holder::{Holder, Taken};
use super::leased::NodeLink;
use super::map::DriveMap;
use super::newest::newest;
use super::votes::votes;
use crate::file::SetNode;
use crate::file::set::DriveSet;
use crate::lease::Fence;
use crate::node::open::{NodeAccess, connect_node};
use crate::node::trouble::{self, Trouble};
use crate::options::OpenOptions;
use crate::timing::{ENDED_TIMEOUT, REGAIN_PATIENCE};

/// The interval of looks for the writer's record of a node that cannot be reached.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(200);

/// How often a drive may be opened again because its last writer moved a part of it meanwhile.
const OPEN_ATTEMPTS: usize = 8;

/// The pause between looks at the progress.
const REGAIN_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// An open set with redundancy.
pub(crate) struct Opened {
    pub redundant: Arc<Redundant>,
    /// The leases, if it is open for writing.
    holder: Option<Holder>,
    /// Renews the read lease, if it is open for reading.
    follower: Option<Arc<Follower>>,
    /// A task that looks after it, and ends before it is closed.
    upkeep: Option<Upkeep>,
    /// The nodes that are missing.
    pub missing: Vec<Trouble>,
    /// Whether all of the drive can be read.
    pub readable: bool,
}

/// A task that looks after a set until this is dropped.
pub(crate) struct Upkeep(JoinHandle<()>);

impl Upkeep {
    /// Starts it.
    pub fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Opened {
    /// Opens a set as `options` say. `fence` is raised when another writer takes it over.
    pub async fn open(set: &DriveSet, options: &OpenOptions, fence: Arc<Fence>) -> Result<Self> {
        let access = NodeAccess {
            writable: options.writable,
            connections: options.connections.max(1),
            session: options.session.clone(),
            exclusive: set.drive.sealed.is_some(),
        };
        if !options.writable {
            return open_reader(set, options, access).await;
        }
        let opened = open_writer(set, options.force_lease, access, fence).await?;
        opened.redundant.resync_in_background();
        Ok(opened)
    }

    /// Lets a task look after the set until it is closed.
    pub fn keep_up(&mut self, upkeep: Upkeep) {
        self.upkeep = Some(upkeep);
    }

    /// Its device, as large as the set. A reader's device can be read as long as it exists, even after
    /// this is dropped.
    pub fn device(&self) -> DynDevice {
        match (&self.holder, &self.follower) {
            (Some(holder), _) => holder.confirmed(self.redundant.clone()),
            (None, Some(follower)) => Arc::new(Followed::new(self.redundant.clone(), follower.clone())),
            (None, None) => self.redundant.clone(),
        }
    }

    /// The fence of its leases.
    pub fn fence(&self) -> Option<Arc<Fence>> {
        self.holder.as_ref().map(Holder::fence)
    }

    /// The holder of its leases.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Waits until nodes that were lost and came back have received the writes that they missed, records that the drive
    /// is no longer open, and releases the leases. Flush the drive first.
    pub async fn close(self) -> Result<()> {
        if self.fence().is_some_and(|fence| !fence.is_up()) {
            self.regain_redundancy().await;
        }
        let Self { redundant, holder, upkeep, .. } = self;
        drop(upkeep);
        let closed = match holder.as_ref().is_some_and(|holder| holder.fence().is_up()) {
            true => Ok(()),
            false => redundant.close().await.map_err(Error::device("closing the drive")),
        };
        // Before the leases are released: a connection would take that for a lost lease.
        drop(redundant);
        if let Some(holder) = holder {
            holder.shared().warn_if_file_is_behind();
            holder.release().await;
        }
        closed
    }
}

impl Opened {
    /// Waits until every member that this writer had lost is in sync again, as long as there is progress. A node that
    /// was slow for a moment would otherwise stay behind until someone repairs the drive.
    async fn regain_redundancy(&self) {
        let members = self.redundant.members();
        let behind = || -> Vec<(usize, MemberState)> {
            let map = members.map();
            let states = map.iter().flat_map(|map| map.members.iter().map(|member| member.state).enumerate());
            states.filter(|(_, state)| *state != MemberState::InSync).collect()
        };
        let (mut least, mut moved) = (u64::MAX, Instant::now());
        let mut ended = vec![None; members.len()];
        while members.stats().members_lost > 0 {
            let missing = behind();
            if missing.is_empty() {
                return;
            }
            let mut may_return = false;
            for (index, state) in missing {
                if ended[index].is_none() {
                    ended[index] = Some(self.has_ended(index).await);
                }
                may_return |= state == MemberState::Syncing || ended[index] == Some(false);
            }
            // Only a new minimum is progress: a node that fails again and again changes its state without end.
            let left = self.redundant.to_resync();
            if left > 0 && left < least {
                (least, moved) = (left, Instant::now());
            }
            if !may_return || moved.elapsed() > REGAIN_PATIENCE {
                let names: Vec<_> = behind().into_iter().map(|(index, _)| members.name(index).to_string()).collect();
                tracing::warn!(
                    next = %Next::from(next::Drive::SeeRepair).record(),
                    "closed without full redundancy: {} missed writes",
                    names.join(", ")
                );
                return;
            }
            sleep(REGAIN_PAUSE).await;
        }
    }

    /// Whether the process of a node has ended, so that it will not return with its content.
    async fn has_ended(&self, member: usize) -> bool {
        match &self.holder {
            Some(holder) => {
                has_ended(&holder.shared().node(member), &holder.shared().session().within(ENDED_TIMEOUT)).await
            }
            None => false,
        }
    }
}

/// Opens a set under its write lease. Nodes that are missing are recorded as stale with the first write.
pub(crate) async fn open_writer(set: &DriveSet, force: bool, access: NodeAccess, fence: Arc<Fence>) -> Result<Opened> {
    for _ in 0..OPEN_ATTEMPTS {
        let found = newest(set, &access.session).await?;
        check_readable(set, &found.map)?;
        let Taken { holder, held } = Holder::take(set, &found.map, force, access.clone(), fence.clone()).await?;
        // Only now can no other writer change the map.
        let assembled = match newest(set, &access.session).await {
            Ok(now) if !now.map.has_same_nodes(&found.map) => {
                holder.release().await;
                continue;
            }
            Ok(now) => assemble_writer(set, &holder, &held, &now.map).await,
            Err(error) => Err(error),
        };
        return opened_by(holder, assembled).await;
    }
    Err(Error::failed(format!("{}: its nodes keep changing; is another process moving it?", set.drive.name)))
}

/// Opens a set for writing by this map, whatever other maps say, and overwrites what other writers wrote to its stale
/// members.
pub(crate) async fn open_keeping(set: &DriveSet, map: &DriveMap, force: bool, access: NodeAccess) -> Result<Opened> {
    let Taken { holder, held } = Holder::take(set, map, force, access, Arc::default()).await?;
    holder.overwrite();
    let assembled = assemble_writer(set, &holder, &held, map).await;
    opened_by(holder, assembled).await
}

/// The set that was put together under these leases; releases them if it was not.
async fn opened_by(holder: Holder, assembled: Result<(Arc<Redundant>, Vec<Trouble>)>) -> Result<Opened> {
    match assembled {
        Ok((redundant, missing)) => {
            Ok(Opened { redundant, holder: Some(holder), follower: None, upkeep: None, missing, readable: true })
        }
        Err(error) => {
            holder.release().await;
            Err(error)
        }
    }
}

async fn assemble_writer(
    set: &DriveSet,
    holder: &Holder,
    held: &[bool],
    map: &DriveMap,
) -> Result<(Arc<Redundant>, Vec<Trouble>)> {
    let nodes = map.nodes.len();
    let connect = |index: usize| {
        let (node, state) = (&map.nodes[index], map.map.members[index].state);
        async move {
            if state == MemberState::Stale || !held[index] && node.http.is_some() {
                return Err(holder.no_lease(index).unwrap_or_else(|| absent(node, state)));
            }
            holder.connect(index).await
        }
    };
    let links = join_all((0..nodes).map(connect)).await;
    let mut engine = Engine::new(map.map.clone(), set.capacity(), set.losses_max());
    let mut missing = Vec::new();
    let mut connected = Vec::new();
    for (index, link) in links.into_iter().enumerate() {
        let name: Arc<str> = map.nodes[index].name.as_str().into();
        match link {
            Ok(link) => connected.push((name, Some(link))),
            Err(error) => {
                missing.push(Trouble::from(error));
                connected.push((name, None));
                if engine.mark_stale(index).is_err() {
                    return Err(too_many_lost(set, &missing));
                }
            }
        }
    }
    let mut incoming = Vec::new();
    for (index, node) in map.incoming.iter().enumerate() {
        let Some(node) = node else { continue };
        match holder.shared().connect_incoming(index, node).await {
            Ok(link) => incoming.push((index, link)),
            Err(error) => {
                tracing::warn!("{} stays where it is: {error}", map.nodes[index].name);
                engine.abandon_move(index);
            }
        }
    }
    let members = Members::writer(connected, engine, holder.environment());
    for (index, link) in incoming {
        members.attach(index, link);
    }
    holder.opened(map, &members);
    Ok((Arc::new(assemble(set, members)?), missing))
}

/// Opens a set by a map that is marked as refetching. Requires all its nodes.
pub(crate) async fn open_refetching(
    set: &DriveSet,
    map: &DriveMap,
    force: bool,
    access: NodeAccess,
    fence: Arc<Fence>,
) -> Result<Opened> {
    let Taken { holder, held } = Holder::take(set, map, force, access, fence).await?;
    let links = join_all((0..map.nodes.len()).map(|index| holder.connect(index))).await;
    let mut connected = Vec::new();
    for ((node, link), held) in map.nodes.iter().zip(links).zip(held) {
        let link = link.and_then(|link| match held || node.http.is_none() {
            true => Ok(link),
            false => Err(absent(node, MemberState::InSync)),
        });
        match link {
            Ok(link) => connected.push((Arc::from(node.name.as_str()), Some(link))),
            Err(error) => {
                holder.release().await;
                return Err(error);
            }
        }
    }
    let engine = Engine::new(map.map.clone(), set.capacity(), set.losses_max());
    let members = Members::writer(connected, engine, holder.environment());
    holder.opened(map, &members);
    let redundant = Arc::new(assemble(set, members)?);
    let missing = Vec::new();
    Ok(Opened { redundant, holder: Some(holder), follower: None, upkeep: None, missing, readable: true })
}

/// Refuses a set whose lost ranges are being fetched again.
fn check_readable(set: &DriveSet, map: &DriveMap) -> Result<()> {
    match map.refetching {
        true => Err(Error::evidence(format!(
            "{name}: lost ranges are being fetched again from the source of its image, and not all are there",
            name = set.drive.name
        ))
        .next(next::Drive::GoOnRefetching { drive: set.drive.name.clone() })),
        false => Ok(()),
    }
}

async fn open_reader(set: &DriveSet, options: &OpenOptions, access: NodeAccess) -> Result<Opened> {
    let begun = Instant::now();
    loop {
        let found = newest(set, &access.session).await?;
        check_readable(set, &found.map)?;
        let links = join_all(found.map.nodes.iter().zip(&found.map.map.members).map(|(node, entry)| async {
            match entry.state {
                MemberState::InSync => connect_node(node, None, &access)
                    .await
                    .map(|(client, device)| Arc::new(NodeLink { client, device }) as DynLink),
                state => Err(absent(node, state)),
            }
        }))
        .await;
        let in_sync = |index: usize| found.map.map.members[index].state == MemberState::InSync;
        let unmarked = links.iter().enumerate().any(|(index, link)| link.is_err() && in_sync(index));
        // A writer that continues without a node records that. The record must not be overlooked, and the node that
        // cannot be reached may be the one that holds it.
        let answered = found.answered.iter().filter(|answered| **answered).count();
        let decides = votes(&found.map.nodes, set.losses_max()).decide(answered, true);
        let certain = !unmarked || !found.map.map.open || decides;
        // No waiting changes this.
        let refused = links.iter().any(|link| link.as_ref().is_err_and(|error| error.fact() == Some(Fact::Refused)));
        if !certain && !refused && begun.elapsed() < access.session.timeout {
            sleep(LOOK_AGAIN).await;
            continue;
        }
        return assemble_reader(set, options, access, found.map, links, certain);
    }
}

fn assemble_reader(
    set: &DriveSet,
    options: &OpenOptions,
    access: NodeAccess,
    map: DriveMap,
    links: Vec<Result<DynLink>>,
    certain: bool,
) -> Result<Opened> {
    let mut missing = Vec::new();
    let mut connected = Vec::new();
    for (node, link) in map.nodes.iter().zip(links) {
        let link = link.map_err(|error| missing.push(Trouble::from(error))).ok();
        connected.push((Arc::from(node.name.as_str()), link));
    }
    let readable = missing.len() <= set.losses_max();
    if !readable && !options.allow_lost {
        return Err(too_many_lost(set, &missing));
    }
    if !certain && !options.allow_lost {
        if let Some(refusal) = trouble::refusal(&set.drive.name, &missing, set.nodes().len()) {
            return Err(refusal);
        }
        return Err(Error::failed(format!(
            "{}: a writer has not closed it, and too few nodes answer to be sure that these have its last writes: {}",
            set.drive.name,
            trouble::reasons(&missing)
        ))
        .advise(trouble::steps(&missing))
        .next(next::Drive::BringBackOrAllowLost));
    }
    let lease = ReadLease::new(options.allow_lost);
    let members = Members::leased_reader(connected, &map.map, lease.clone());
    let redundant = Arc::new(assemble(set, members.clone())?);
    let follower = Follower::start(set.clone(), map, access, &members, lease);
    Ok(Opened { redundant, holder: None, follower: Some(Arc::new(follower)), upkeep: None, missing, readable })
}

/// The error of a member that is not used.
fn absent(node: &SetNode, state: MemberState) -> Error {
    let why = |why: &str| format!("node {}: {why}", node.name);
    match state {
        MemberState::Stale => {
            Error::failed(why("it missed writes, and is not used until it is resynchronized or replaced"))
        }
        MemberState::Syncing => Error::failed(why("it is being resynchronized")),
        MemberState::InSync => Error::node(Fact::Silent, why("it does not answer")),
    }
}

fn too_many_lost(set: &DriveSet, missing: &[Trouble]) -> Error {
    trouble::cannot_open(&set.drive.name, missing, set.nodes().len(), set.losses_max())
}

fn assemble(set: &DriveSet, members: Arc<Members>) -> Result<Redundant> {
    let bad = || Error::device(format!("assembling {}", set.drive.name));
    let geometry = set.entry().geometry().map_err(bad())?;
    let arrays = geometry.zones().iter().map(|zone| ArrayPlace {
        geometry: zone.array.clone(),
        places: zone.members.iter().copied().zip(zone.member_starts.iter().copied()).collect(),
    });
    Redundant::new(arrays.collect(), members).map_err(bad())
}
