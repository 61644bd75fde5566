//! Repairing a redundant drive: nodes receive the writes that they missed, and lost nodes are replaced by others.
//!
//! The drive stays in use meanwhile. If a process has it open for writing, that process does the work, because the map
//! can only be changed under its leases. Repair leaves it a request, and shows its progress. If the writer ends or is
//! killed, repair takes the leases and continues where the writer stopped; if repair is killed, the writer continues.

use std::sync::Arc;
use std::time::Duration;

use cheetah_error::{Error, Fact, Result, next};
use cheetah_redundancy::map::Member;
use cheetah_redundancy::{MemberState, Regions};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::former::wipe;
use super::request::Request;
use super::spare::{available, name_of, replace, restarted};
use crate::file::DriveFile;
use crate::file::check::SPARES_MAX;
use crate::file::set::DriveSet;
use crate::node::find::AvailableNode;
use crate::node::health::set_statuses;
use crate::node::open::NodeAccess;
use crate::session::Session;
use crate::set::divergence::Divergence;
use crate::set::map::DriveMap;
use crate::set::newest::{newest, newest_of_any};
use crate::set::open::{Opened, open_keeping, open_writer};
use crate::timing::{ANSWER_WAIT, LEAVE_WAIT, NOTICE_WAIT};

/// The interval of looks at the writer's progress.
const LOOK: Duration = Duration::from_millis(500);
/// The interval of checks that there still is a writer.
const ASK_WRITER: Duration = Duration::from_secs(3);
/// The interval at which the progress of a repair is recorded.
const RECORD: Duration = Duration::from_secs(3);

/// How to repair a drive.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// Nodes that may take the place of lost ones.
    pub spares: Vec<AvailableNode>,
    /// Take the lease from its holder.
    pub force_lease: bool,
    /// How long a node may take to answer.
    pub session: Session,
}

/// The progress of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairProgress {
    /// Regions done.
    pub done: u64,
    /// Regions left.
    pub left: u64,
}

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Repaired {
    /// Nodes that came back, and received the writes that they missed.
    pub resynced: Vec<String>,
    /// Nodes that were replaced.
    pub replaced: Vec<Replacement>,
    /// Nodes that are still missing.
    pub missing: Vec<Missing>,
    /// Why nodes were not replaced, a sentence each.
    pub problems: Vec<String>,
    /// The process that did the work, if it has the drive open for writing.
    pub writer: Option<String>,
    /// The number of losses that the drive survives now.
    pub survives: usize,
    /// The number of losses that its layout survives when nothing is missing.
    pub survives_max: usize,
}

/// A node that was replaced by another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replacement {
    /// The lost node.
    pub lost: String,
    /// The node that now has its part of the drive.
    pub by: String,
}

/// A node that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missing {
    /// The node.
    pub node: String,
    /// The free memory that its replacement needs, in bytes.
    pub size_bytes: u64,
}

impl Repaired {
    /// The same of two sets together.
    fn and(mut self, other: Self) -> Self {
        self.resynced.extend(other.resynced);
        self.replaced.extend(other.replaced);
        self.missing.extend(other.missing);
        self.problems.extend(other.problems);
        self.writer = self.writer.or(other.writer);
        self.survives = self.survives.min(other.survives);
        self.survives_max = self.survives_max.min(other.survives_max);
        self
    }

    /// Whether redundancy is complete.
    pub fn is_complete(&self) -> bool {
        self.survives == self.survives_max
    }
}

/// Repairs a drive, and brings its file up to date. The spares are recorded for the next loss.
///
/// # Errors
///
/// If the drive has no redundancy, has lost more nodes than its layout survives, or its writer does not answer.
pub async fn repair(
    file: &mut DriveFile,
    options: RepairOptions,
    mut progress: impl FnMut(RepairProgress) + Send,
) -> Result<Repaired> {
    if !file.is_redundant() {
        return Err(Error::misuse(format!(
            "{} has no redundancy, so there is nothing to repair it from; load its image again",
            file.name
        )));
    }
    let names: Vec<String> = options.spares.iter().map(name_of).collect();
    file.update(|file| {
        let known = std::mem::take(&mut file.spares);
        file.spares = names.iter().cloned().chain(known.into_iter().filter(|spare| !names.contains(spare))).collect();
        file.spares.truncate(SPARES_MAX);
    })?;
    let mut whole: Option<Repaired> = None;
    let sets = file.sets.len() as u64;
    for (set, before) in DriveSet::all(file).zip(0..) {
        let mut progress = |RepairProgress { done, left }: RepairProgress| {
            let of_set = done + left;
            progress(RepairProgress { done: before * of_set + done, left: (sets - 1 - before) * of_set + left });
        };
        let repaired = repair_set(&mut set.clone(), &options, &mut progress).await?;
        whole = Some(match whole {
            Some(whole) => whole.and(repaired),
            None => repaired,
        });
    }
    *file = DriveFile::load(&file.path)?;
    whole.ok_or_else(|| Error::failed(format!("{} has no sets", file.name)))
}

/// Decides between writers that wrote to a drive apart from each other: keeps the content of the side with `node`, and
/// overwrites that of the other one. `record` gets the decision before anything is overwritten. Returns the sides, by the
/// names of their nodes.
///
/// # Errors
///
/// If no writers did, the node is of neither side, a process has the drive open for writing, or a node cannot be written.
pub async fn keep(
    file: &mut DriveFile,
    node: &str,
    options: &RepairOptions,
    record: impl FnOnce(&Kept) -> Result<()>,
    mut progress: impl FnMut(RepairProgress) + Send,
) -> Result<Kept> {
    let (mut kept, mut maps) = (Kept::default(), Vec::new());
    for set in DriveSet::all(file).collect::<Vec<_>>() {
        let Some(divergence) = newest_of_any(&set, &options.session).await?.diverged else { continue };
        let [one, other] = divergence.sides();
        let (keeps, loses) = match (one.is_held_by(node), other.is_held_by(node)) {
            (true, false) => (one, other),
            (false, true) => (other, one),
            _ => {
                let refusal = divergence.refusal(&set);
                return Err(refusal.said(|refusal| format!("{node} names no side: {refusal}")).as_misuse());
            }
        };
        let names = |side: &DriveMap, known: &mut Vec<String>| {
            for name in side.holder_names() {
                if !known.iter().any(|other| other == name) {
                    known.push(name.to_owned());
                }
            }
        };
        names(keeps, &mut kept.kept);
        names(loses, &mut kept.overwritten);
        let map = overwriting(&set, keeps, &divergence);
        maps.push((set, map));
    }
    if maps.is_empty() {
        return Err(Error::misuse(format!(
            "{}: no two of its nodes that answer were written to apart from each other, so there is nothing to decide",
            file.name
        ))
        .next(next::Drive::LeaveOutKeep));
    }
    record(&kept)?;
    for (mut set, map) in maps {
        keep_of_set(&mut set, &map, options, &mut progress).await?;
    }
    *file = DriveFile::load(&file.path)?;
    Ok(kept)
}

/// The sides of a drive between which was decided, by the names of their nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kept {
    /// The nodes whose content was kept.
    pub kept: Vec<String>,
    /// The nodes whose content was overwritten.
    pub overwritten: Vec<String>,
}

/// The map of the side that is kept, newer than both, in which all other members have missed everything.
fn overwriting(set: &DriveSet, keeps: &DriveMap, divergence: &Divergence) -> DriveMap {
    let mut map = keeps.clone();
    let epochs = divergence.sides().map(|side| side.map.epoch);
    map.map.epoch = epochs.into_iter().fold(set.entry().epoch, u64::max);
    map.map.open = true;
    map.map.unsettled = map.map.unsettled.whole();
    for member in map.map.members.iter_mut().filter(|member| member.state != MemberState::InSync) {
        *member = Member::new(MemberState::Stale, Regions::all(set.capacity()));
    }
    map
}

async fn keep_of_set(
    set: &mut DriveSet,
    map: &DriveMap,
    options: &RepairOptions,
    progress: &mut (impl FnMut(RepairProgress) + Send),
) -> Result<()> {
    if let Some(writer) = writer(set, &options.session).await.filter(|_| !options.force_lease) {
        return Err(
            Error::failed(format!("{} is written by {writer}", set.drive.name)).next(next::Lease::CloseOrForceLease)
        );
    }
    let opened = open_keeping(set, map, options.force_lease, access(options)).await?;
    let (now, problems) = work_and_close(set, options, opened, progress).await?;
    match now.map.members_in_sync() == now.nodes.len() {
        true => Ok(()),
        false => Err(Error::failed(format!(
            "{}: the content that was chosen is kept, but not every node has it yet: {}",
            set.drive.name,
            problems.join("; ")
        ))
        .next(next::Drive::Repair)),
    }
}

/// Repairs a set, and brings its entry in the drive file up to date.
pub(super) async fn repair_set(
    set: &mut DriveSet,
    options: &RepairOptions,
    progress: &mut (impl FnMut(RepairProgress) + Send),
) -> Result<Repaired> {
    loop {
        newest(set, &options.session).await?.map.update(&mut set.drive, set.index);
        let repaired = match writer(set, &options.session).await.filter(|_| !options.force_lease) {
            Some(writer) => watch_writer(set, options, writer, progress).await?,
            None => Some(repair_alone(set, options, progress).await?),
        };
        if let Some(repaired) = repaired {
            return Ok(repaired);
        }
    }
}

/// The process that has the set open for writing.
async fn writer(set: &DriveSet, session: &Session) -> Option<String> {
    set_statuses(set, session).await.into_iter().find_map(|node| node.writer)
}

/// Asks the writer to repair the drive, and waits for that. `None` if the writer ends before.
async fn watch_writer(
    set: &mut DriveSet,
    options: &RepairOptions,
    writer: String,
    progress: &mut (impl FnMut(RepairProgress) + Send),
) -> Result<Option<Repaired>> {
    let before = newest(set, &options.session).await?.map;
    let spares = options.spares.iter().map(name_of).collect();
    let nodes = set_statuses(set, &options.session).await;
    let lost: Vec<String> = nodes.into_iter().filter(|node| !node.is_whole()).map(|node| node.nbd).collect();
    let is_lost = |map: &DriveMap| map.nodes.iter().any(|node| lost.contains(&node.nbd));
    let request = Request::new(spares, lost.clone())?;
    let asking = Instant::now();
    while let Err(error) = request.leave(&before.nodes, &options.session).await {
        if error.fact() == Some(Fact::Refused) {
            return Err(error);
        }
        // A busy node may not have taken it in time.
        if asking.elapsed() < LEAVE_WAIT {
            sleep(LOOK).await;
            continue;
        }
        return Err(Error::failed(format!(
            "{} is written by {writer}, which cannot be told to repair it ({error}); close the drive there first",
            set.drive.name
        )));
    }
    let (mut most, mut left_before) = (0, u64::MAX);
    let begun = Instant::now();
    let (mut asked, mut advanced) = (begun, begun);
    loop {
        let now = newest(set, &options.session).await?.map;
        let left = left(&now);
        most = most.max(left);
        if left != left_before {
            (left_before, advanced) = (left, Instant::now());
            progress(RepairProgress { done: most - left, left });
        }
        let is_stale = now.map.members.iter().any(|member| member.state == MemberState::Stale);
        let is_syncing = now.map.members.iter().any(|member| member.state == MemberState::Syncing);
        let answer = if is_stale { request.answer(&now.nodes, &options.session).await } else { None };
        // The writer may not have noticed a loss yet. Or it sees no loss, and the node is cut off from here only.
        let noticed = is_stale || is_syncing || !is_lost(&now) || begun.elapsed() >= NOTICE_WAIT;
        if noticed && !is_syncing && (!is_stale || answer.is_some()) {
            let index = set.index;
            set.update(|file| now.update(file, index))?;
            let problems = answer.map(|answer| answer.problems).unwrap_or_default();
            return Ok(Some(Repaired { writer: Some(writer), problems, ..compare(set, &before, &now) }));
        }
        if asked.elapsed() >= ASK_WRITER {
            asked = Instant::now();
            if self::writer(set, &options.session).await.is_none() {
                return Ok(None);
            }
        }
        if advanced.elapsed() >= ANSWER_WAIT {
            return Err(Error::failed(format!(
                "{} is written by {writer}, which neither answers nor repairs it",
                set.drive.name
            ))
            .next(next::Lease::CloseOrTakeLease));
        }
        sleep(LOOK).await;
    }
}

/// The number of regions missing at members that are being resynchronized.
fn left(map: &DriveMap) -> u64 {
    let syncing = map.map.members.iter().filter(|member| member.state == MemberState::Syncing);
    syncing.map(|member| member.missed.len()).max().unwrap_or(0)
}

/// The changes from one map to another.
fn compare(set: &DriveSet, before: &DriveMap, now: &DriveMap) -> Repaired {
    let mut repaired = Repaired {
        resynced: Vec::new(),
        replaced: Vec::new(),
        missing: Vec::new(),
        problems: Vec::new(),
        writer: None,
        survives: 0,
        survives_max: set.losses_max(),
    };
    for (index, (was, is)) in before.nodes.iter().zip(&now.nodes).enumerate() {
        let in_sync = |map: &DriveMap| map.map.members[index].state == MemberState::InSync;
        if !in_sync(now) {
            repaired.missing.push(Missing { node: is.name.clone(), size_bytes: is.size });
        } else if was.nbd != is.nbd || was.instance != is.instance {
            repaired.replaced.push(Replacement { lost: was.name.clone(), by: is.name.clone() });
        } else if !in_sync(before) {
            repaired.resynced.push(is.name.clone());
        }
    }
    repaired.survives = repaired.survives_max.saturating_sub(repaired.missing.len());
    repaired
}

/// Repairs a set that no process has open for writing, under its write leases.
async fn repair_alone(
    set: &mut DriveSet,
    options: &RepairOptions,
    progress: &mut (impl FnMut(RepairProgress) + Send),
) -> Result<Repaired> {
    let before = newest(set, &options.session).await?.map;
    let opened = open_writer(set, options.force_lease, access(options), Arc::default()).await?;
    let (now, problems) = work_and_close(set, options, opened, progress).await?;
    Ok(Repaired { problems, ..compare(set, &before, &now) })
}

fn access(options: &RepairOptions) -> NodeAccess {
    NodeAccess { writable: true, connections: 2, session: options.session.clone(), exclusive: false }
}

/// Repairs an open set and closes it. Returns its map then, which the drive file has, too, and the problems.
async fn work_and_close(
    set: &mut DriveSet,
    options: &RepairOptions,
    opened: Opened,
    progress: &mut (impl FnMut(RepairProgress) + Send),
) -> Result<(DriveMap, Vec<String>)> {
    let worked = work(set, options, &opened, progress).await;
    let closed = opened.close().await;
    let problems = worked?;
    closed?;
    // The repair has changed the drive file, which alone has the map of a drive of foreign servers.
    set.update(|_| {})?;
    // Includes changes that the former writer recorded when it ended.
    let now = newest(set, &options.session).await?.map;
    let index = set.index;
    set.update(|file| now.update(file, index))?;
    Ok((now, problems))
}

async fn work(
    set: &DriveSet,
    options: &RepairOptions,
    opened: &Opened,
    progress: &mut (impl FnMut(RepairProgress) + Send),
) -> Result<Vec<String>> {
    let members = opened.redundant.members();
    let Some(holder) = opened.holder() else { return Err(Error::failed("a repair needs the write lease")) };
    let shared = holder.shared();
    let names = shared.newest_spares();
    let is_stale = |index: usize| members.map().is_none_or(|map| map.members[index].state == MemberState::Stale);
    let mut others: Option<Vec<AvailableNode>> = None;
    let mut problems = Vec::new();
    for (index, node) in shared.nodes().into_iter().enumerate() {
        if !is_stale(index) || members.rejoin(index).await {
            continue;
        }
        if others.is_none() {
            let known: Vec<String> = options.spares.iter().map(name_of).collect();
            let unknown: Vec<String> = names.iter().filter(|name| !known.contains(name)).cloned().collect();
            others = Some(available(&unknown, &options.session).await);
        }
        // The nodes named in this request, then those of the drive file, then the lost node's own machine, if it was
        // restarted.
        let named = options.spares.iter().chain(others.iter().flatten()).cloned();
        let spares: Vec<_> = named.chain(restarted(&node, &options.session).await).collect();
        if let Err(error) = replace(shared, members, index, &spares, &options.session).await {
            problems.push(error.to_string());
        }
    }
    let resync = async {
        let mut tell = |done, left| progress(RepairProgress { done, left });
        opened.redundant.resync(&mut tell).await.map_err(Error::device(format!("repairing {}", set.drive.name)))
    };
    let record = async {
        loop {
            sleep(RECORD).await;
            if let Err(error) = members.record_progress().await {
                tracing::debug!("the progress of the repair is not recorded: {error}");
            }
        }
    };
    tokio::select! {
        resynced = resync => resynced.map(drop)?,
        never = record => never,
    }
    if members.map().is_some_and(|map| map.members.iter().all(|member| member.state == MemberState::InSync)) {
        wipe(shared).await;
    }
    Ok(problems)
}
