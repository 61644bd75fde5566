//! The upkeep of an open drive.
//!
//! A writer replaces nodes that stay lost by spares, at once if `repair` asks for it. It moves its parts off nodes that
//! are draining, records the progress of resynchronization, and has nodes that were replaced or left wipe their parts. A reader repairs a drive that no process has open for
//! writing, as `repair` does.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cheetah_error::Result;
use cheetah_redundancy::{MemberState, Members};
use tokio::time::{Instant, sleep};

use super::draining::Drainer;
use super::former::wipe;
use super::repair::{RepairOptions, Replacement, repair_set};
use super::request::{Answer, Recovery, Request};
use super::spare::{available, check, replace, restarted};
use crate::file::DriveFile;
use crate::file::set::DriveSet;
use crate::node::health::{NodeState, NodeStatus, set_statuses};
use crate::options::OpenOptions;
use crate::session::Session;
use crate::set::arrays::Arrays;
use crate::set::newest::newest;
use crate::set::open::Upkeep;
use crate::set::shared::Shared;
use crate::timing::{UPKEEP_LOOK, UPKEEP_RETRY};

/// The looks of a reader between two requests for the nodes' state.
const LOOKS_PER_STATUS: u64 = 5;
/// The interval at which the progress of a resynchronization is recorded.
const RECORD: Duration = Duration::from_secs(3);
/// The interval at which counts of damage and repairs are left at the nodes.
const COUNT: Duration = Duration::from_secs(5);
/// How long a spare may take to return its free memory.
const SPARE_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens the sets of a redundant drive as [`Arrays::open`] does, and maintains them until they are closed: a writer's always, a
/// reader's if `options` let it repair.
pub(crate) async fn open(file: &DriveFile, options: &OpenOptions) -> Result<Arrays> {
    let mut arrays = Arrays::open(file, options).await?;
    for (set, opened) in DriveSet::all(file).zip(arrays.sets_mut()) {
        let members = opened.redundant.members().clone();
        if let Some(holder) = opened.holder() {
            let shared = holder.shared().clone();
            opened.keep_up(of_writer(shared, &members, options.replace_after));
        } else if let Some(patience) = options.replace_after {
            opened.keep_up(of_reader(set, &members, patience, &options.session));
        }
    }
    Ok(arrays)
}

/// A member that has been lost for `patience` is replaced; with `None`, members are replaced only when `repair` asks for
/// it.
fn of_writer(shared: Arc<Shared>, members: &Arc<Members>, patience: Option<Duration>) -> Upkeep {
    let looks = patience.map(|patience| patience.as_secs().div_ceil(UPKEEP_LOOK.as_secs()));
    let worker = Worker {
        shared,
        looks,
        lost_for: vec![0; members.len()],
        tried: None,
        told: String::new(),
        drainer: Drainer::default(),
        moves: 0,
    };
    Upkeep::start(worker.run(Arc::downgrade(members)))
}

/// A drive with members that have been lost for `patience` is repaired.
fn of_reader(set: DriveSet, members: &Arc<Members>, patience: Duration, session: &Session) -> Upkeep {
    let looks = patience.as_secs().div_ceil(UPKEEP_LOOK.as_secs()).max(1);
    Upkeep::start(repair_for_readers(set, Arc::downgrade(members), looks, session.clone()))
}

/// Looks are counted, not time: this process may have been frozen.
async fn repair_for_readers(mut set: DriveSet, members: Weak<Members>, looks: u64, session: Session) {
    let (mut lost_for, mut are_whole) = (0, true);
    for look in 1_u64.. {
        sleep(UPKEEP_LOOK).await;
        let Some(are_ready) = members.upgrade().map(|members| members.all_ready()) else { return };
        // While nobody reads, only the nodes' own answers show a loss.
        if look % LOOKS_PER_STATUS == 0 {
            are_whole = set_statuses(&set, &session.within(SPARE_TIMEOUT)).await.iter().all(NodeStatus::is_whole);
        }
        lost_for = if are_ready && are_whole { 0 } else { lost_for + 1 };
        if lost_for <= looks {
            continue;
        }
        lost_for = 0;
        are_whole = true;
        if let Err(error) = repair_if_possible(&mut set, &session).await {
            tracing::warn!("{} cannot be repaired: {error}", set.drive.name);
        }
    }
}

/// Repairs a set if no process has it open for writing, and a node came back or can be replaced. Otherwise the leases
/// would be taken in vain.
async fn repair_if_possible(set: &mut DriveSet, session: &Session) -> Result<()> {
    let on_disk = DriveFile::load(&set.drive.path).ok().filter(|found| found.id == set.drive.id);
    if let Some(on_disk) = on_disk.and_then(|drive| DriveSet::of(drive, set.index)) {
        *set = on_disk;
    }
    newest(set, session).await?.map.update(&mut set.drive, set.index);
    let statuses = set_statuses(set, session).await;
    if statuses.iter().any(|node| node.writer.is_some()) || statuses.iter().all(NodeStatus::is_whole) {
        return Ok(());
    }
    let nodes = set.nodes();
    let quick = session.within(SPARE_TIMEOUT);
    let spares = available(&set.drive.spares, &quick).await;
    let mut is_possible = false;
    for (index, status) in statuses.iter().enumerate().filter(|(_, status)| !status.is_whole()) {
        let is_back = status.state == NodeState::Ok;
        let own = restarted(&nodes[index], &quick).await;
        let suits = |spare| check(spare, &set.drive.name, nodes, index).is_ok();
        is_possible |= is_back || spares.iter().chain(&own).any(suits);
    }
    if !is_possible {
        return Ok(());
    }
    let options = RepairOptions { spares: Vec::new(), force_lease: false, session: session.clone() };
    let repaired = repair_set(set, &options, &mut |_| {}).await?;
    for node in &repaired.resynced {
        tracing::warn!("{node} is back, and has received the writes that it missed");
    }
    for Replacement { lost, by } in &repaired.replaced {
        tracing::warn!("{by} replaces {lost}, which stays lost");
    }
    Ok(())
}

struct Worker {
    shared: Arc<Shared>,
    /// The number of consecutive looks that must find a member lost. Looks are counted, not time: this process may have
    /// been frozen.
    looks: Option<u64>,
    lost_for: Vec<u64>,
    /// When a replacement last failed, and for which request.
    tried: Option<(Instant, String)>,
    /// The last warning.
    told: String,
    drainer: Drainer,
    /// The number of moves at the last look.
    moves: usize,
}

impl Worker {
    async fn run(mut self, members: Weak<Members>) {
        // A former writer may have ended before a node had wiped what it held.
        let (mut recorded, mut wiped) = (Instant::now(), None::<Instant>);
        let (mut counted, mut told) = (Instant::now(), None);
        while !self.shared.is_fenced() {
            sleep(UPKEEP_LOOK).await;
            let Some(members) = members.upgrade() else { return };
            let Some(map) = members.map() else { return };
            if recorded.elapsed() >= RECORD {
                recorded = Instant::now();
                if let Err(error) = members.record_progress().await {
                    tracing::debug!("the progress of the repair is not recorded: {error}");
                }
            }
            if counted.elapsed() >= COUNT && told != Some(members.stats()) {
                counted = Instant::now();
                told = Some(members.stats());
                if let Some(recovery) = Recovery::of(members.stats()) {
                    recovery.leave(&self.shared.nodes(), self.shared.session()).await;
                }
            }
            for (lost_for, member) in self.lost_for.iter_mut().zip(&map.members) {
                *lost_for = if member.state == MemberState::Stale { *lost_for + 1 } else { 0 };
            }
            let moves = map.members.iter().filter(|member| member.incoming.is_some()).count();
            let has_moved = moves < self.moves;
            if self.lost_for.iter().any(|looks| *looks > 0) {
                self.restore(&members).await;
            } else if map.members.iter().all(|member| member.state == MemberState::InSync)
                && (has_moved || wiped.is_none_or(|wiped| wiped.elapsed() >= UPKEEP_RETRY))
                && !(0..members.len()).any(|member| members.is_leaving(member))
            {
                self.moves = moves;
                wiped = Some(Instant::now());
                wipe(&self.shared).await;
            }
            self.moves = self.moves.max(moves);
            self.drainer.look(&self.shared, &members).await;
        }
    }

    async fn restore(&mut self, members: &Arc<Members>) {
        let nodes = self.shared.nodes();
        let request = Request::latest(&nodes, self.shared.session()).await;
        let is_due = |index: &usize| {
            let lost_for = self.lost_for[*index];
            let asked = lost_for > 0 && request.replace.contains(&nodes[*index].nbd);
            asked || lost_for > 0 && self.looks.is_some_and(|looks| lost_for > looks)
        };
        let due: Vec<usize> = (0..nodes.len()).filter(is_due).collect();
        let waits = self.tried.as_ref().is_some_and(|(at, of)| at.elapsed() < UPKEEP_RETRY && *of == request.id);
        if due.is_empty() || waits {
            return;
        }
        let quick = self.shared.session().within(SPARE_TIMEOUT);
        let spares = available(&[request.spares.clone(), self.shared.newest_spares()].concat(), &quick).await;
        let mut problems = Vec::new();
        for index in due {
            if members.map().is_none_or(|map| map.members[index].state != MemberState::Stale) {
                continue;
            }
            // The spares named, then the lost node's own machine, if it was restarted.
            let all: Vec<_> = spares.iter().cloned().chain(restarted(&nodes[index], &quick).await).collect();
            match replace(&self.shared, members, index, &all, self.shared.session()).await {
                Ok(replaced) => tracing::warn!("{} replaces {}, which stays lost", replaced.by, replaced.lost),
                Err(error) => problems.push(error.to_string()),
            }
        }
        let said = problems.join("; ");
        if !said.is_empty() && said != self.told {
            tracing::warn!("redundancy cannot be restored: {said}");
        }
        self.told = said;
        self.tried = (!problems.is_empty()).then(|| (Instant::now(), request.id.clone()));
        if !request.id.is_empty() {
            Answer { request: request.id, problems }.leave(&self.shared.nodes(), self.shared.session()).await;
        }
    }
}
