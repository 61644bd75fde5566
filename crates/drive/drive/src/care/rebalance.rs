//! Rebalancing a drive: its parts move between nodes until each bundle of sets is spread evenly over them.
//!
//! The moves are those of draining, one at a time. The holder of the write leases carries each of them out, and this
//! process asks for it. A drive that no process has open for writing is opened by this process.

use std::time::Duration;

use cheetah_control::api::Status;
use cheetah_error::{Error, Fact, Result};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::request::{Leaving, MoveRequest, Step};
use super::spare::{available, name_of};
use super::upkeep;
use crate::file::{DriveFile, SetNode};
use crate::layout::balance::{Move, Part, next};
use crate::node::export::NodeExport;
use crate::node::find::AvailableNode;
use crate::node::health::node_statuses;
use crate::node::trouble::{self, Trouble};
use crate::options::OpenOptions;
use crate::session::Session;
use crate::set::arrays::Arrays;
use crate::set::newest::{record, refresh};
use crate::timing::{DOUBT_WAIT, LEAVE_WAIT, MOVE_WORD_WAIT, WIPE_WAIT};

/// The interval of looks at a move.
const LOOK: Duration = Duration::from_millis(300);
/// The interval of questions whether a process has the drive open for writing.
const ASK_WRITER: Duration = Duration::from_secs(2);

/// How to rebalance a drive.
#[derive(Debug, Clone)]
pub struct RebalanceOptions {
    /// Further nodes to use.
    pub nodes: Vec<AvailableNode>,
    /// What the drive is opened with.
    pub session: Session,
}

/// The progress of the current move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebalanceProgress {
    /// The number of parts that have moved.
    pub moved: usize,
    /// The node that the part leaves.
    pub from: String,
    /// The node that takes it.
    pub to: String,
    /// Its bytes that have been copied, estimated.
    pub done_bytes: u64,
    /// Its bytes.
    pub total_bytes: u64,
}

/// A part that has moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moved {
    /// The node that it left.
    pub from: String,
    /// The node that took it.
    pub to: String,
    /// Its bytes.
    pub bytes: u64,
}

/// The result of rebalancing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rebalanced {
    /// The parts that have moved, in order.
    pub moved: Vec<Moved>,
    /// The nodes of the drive now, and the bytes of the drive at each.
    pub nodes: Vec<NodeBytes>,
    /// A node that would take another part if it had this many bytes of free memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<NodeBytes>,
}

/// The bytes of a drive at a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeBytes {
    /// The node.
    pub node: String,
    /// Its bytes.
    pub bytes: u64,
}

/// Moves parts until no move makes the drive more even, and brings its file up to date.
///
/// # Errors
///
/// If the drive has no redundancy, a node of it is lost, or a part cannot be moved. Parts that have moved stay where they
/// are.
pub async fn rebalance(
    file: &mut DriveFile,
    options: &RebalanceOptions,
    mut progress: impl FnMut(RebalanceProgress) + Send,
) -> Result<Rebalanced> {
    if !file.is_redundant() {
        return Err(Error::failed(format!(
            "{} has no redundancy: only mirror and parity are read and written while their parts move; save its image \
             and load it into another drive",
            file.name
        )));
    }
    let mut work = Work { options, own: None, asked: None };
    let worked = work.run(file, &mut progress).await;
    let closed = match work.own {
        Some(arrays) => arrays.close().await,
        None => Ok(()),
    };
    let Worked { now, moved, lacks } = worked?;
    closed?;
    record(file, &now, &options.session).await?;
    Ok(Rebalanced { moved, nodes: bytes_of_nodes(file), lacks })
}

/// The drive after the moves.
struct Worked {
    now: DriveFile,
    moved: Vec<Moved>,
    lacks: Option<NodeBytes>,
}

struct Work<'a> {
    options: &'a RebalanceOptions,
    /// The drive, open for writing, if no other process has it open.
    own: Option<Arrays>,
    /// When the nodes were last asked for a process that has it open.
    asked: Option<Instant>,
}

impl Work<'_> {
    async fn run(&mut self, file: &DriveFile, progress: &mut (impl FnMut(RebalanceProgress) + Send)) -> Result<Worked> {
        let options = self.options;
        let session = &options.session;
        let (mut now, mut moved) = (file.clone(), Vec::new());
        // A set is not moved off all nodes that an old copy of the drive file names, if another one can be moved instead.
        let mut moves = vec![0; now.sets.len()];
        loop {
            // From the last one on: none of the nodes in the drive file may have a part any more.
            now = refresh(&now, session).await?;
            let statuses = node_statuses(&now, session).await;
            let troubles: Vec<Trouble> = statuses.iter().filter_map(Trouble::of).collect();
            if let Some(error) = trouble::needs_all(&file.name, "rebalanced", &troubles, statuses.len()) {
                return Err(error);
            }
            let nodes = nodes_of(&now, &self.options.nodes, session).await;
            let free: Vec<u64> = nodes.iter().map(|node| node.free_bytes).collect();
            let parts = parts_of(&now, &nodes);
            let Some(Move { part, to }) = next(&parts, &free, &moves) else {
                let with_room = next(&parts, &vec![u64::MAX; nodes.len()], &moves);
                let lacks =
                    with_room.map(|step| NodeBytes { node: nodes[step.to].name.clone(), bytes: step.part.bytes });
                return Ok(Worked { now, moved, lacks });
            };
            let node = now.sets[part.set].nodes[part.member].clone();
            let mut tell = |done_bytes| {
                let (from, to) = (node.name.clone(), nodes[to].name.clone());
                progress(RebalanceProgress { moved: moved.len(), from, to, done_bytes, total_bytes: part.bytes });
            };
            now = self.carry_out(now, part, &nodes[to], &mut tell).await?;
            moves[part.set] += 1;
            moved.push(Moved { from: node.name, to: nodes[to].name.clone(), bytes: part.bytes });
        }
    }

    /// Opens the drive for writing if no process has it open, so that there is one that moves its parts.
    async fn ensure_writer(&mut self, now: &DriveFile) {
        if self.own.is_some() || self.asked.is_some_and(|asked| asked.elapsed() < ASK_WRITER) {
            return;
        }
        self.asked = Some(Instant::now());
        let options = self.options;
        let session = &options.session;
        if node_statuses(now, session).await.iter().all(|node| node.writer.is_none()) {
            let open = OpenOptions { writable: true, ..OpenOptions::new(self.options.session.clone()) };
            match upkeep::open(now, &open).await {
                Ok(arrays) => self.own = Some(arrays),
                // Another process may have opened it meanwhile.
                Err(error) => tracing::debug!("{} is not opened for its move: {error}", now.name),
            }
        }
    }

    /// Has a part moved, and waits until the node that it leaves has wiped it. Returns the drive after that.
    async fn carry_out(
        &mut self,
        mut now: DriveFile,
        part: Part,
        to: &AvailableNode,
        tell: &mut (impl FnMut(u64) + Send),
    ) -> Result<DriveFile> {
        let options = self.options;
        let session = &options.session;
        let node = &now.sets[part.set].nodes[part.member].clone();
        let failed = |why: &str| Error::failed(format!("the part of {} cannot move to {}: {why}", node.name, to.name));
        let before = Leaving::at(node, session).await;
        let asking = Instant::now();
        // A busy node may not have taken it in time.
        while let Err(error) = (MoveRequest { to: name_of(to) }).leave(node, session).await {
            if error.fact() == Some(Fact::Refused) || asking.elapsed() >= LEAVE_WAIT {
                return Err(error);
            }
            sleep(LOOK).await;
        }
        let (mut heard, mut left_node, mut doubted) = (Instant::now(), None, None);
        tell(0);
        loop {
            self.ensure_writer(&now).await;
            sleep(LOOK).await;
            now = refresh(&now, session).await?;
            if !now.sets[part.set].nodes[part.member].is_same(node) {
                tell(part.bytes);
                let left = *left_node.get_or_insert_with(Instant::now);
                if has_wiped(node, session).await || left.elapsed() >= WIPE_WAIT {
                    return Ok(now);
                }
                continue;
            }
            match Leaving::at(node, session)
                .await
                .filter(|word| Some(word) != before.as_ref() && word.to == [name_of(to)])
            {
                Some(Leaving { step: Step::Stuck { why, is_certain, next }, .. }) => {
                    heard = Instant::now();
                    let since = *doubted.get_or_insert_with(Instant::now);
                    if is_certain || since.elapsed() >= DOUBT_WAIT {
                        take_back(node, session).await;
                        return Err(failed(&why).advise(next));
                    }
                }
                Some(Leaving { step: Step::Moving { regions_left, regions }, .. }) => {
                    (heard, doubted) = (Instant::now(), None);
                    tell(part.bytes / regions.max(1) * regions.saturating_sub(regions_left));
                }
                Some(Leaving { step: Step::Waiting, .. }) => heard = Instant::now(),
                None => {}
            }
            // This process is the writer: it moves the part, however long that takes.
            if self.own.as_ref().is_some_and(|own| own.fence().is_none_or(|fence| !fence.is_up())) {
                heard = Instant::now();
            }
            if heard.elapsed() >= MOVE_WORD_WAIT {
                take_back(node, session).await;
                return Err(failed(
                    "the process that has the drive open for writing has not said anything about it for two minutes; close the \
                     drive there, or try again",
                ));
            }
        }
    }
}

/// The Cheetah nodes of a drive and further ones, each once, with their free memory.
async fn nodes_of(file: &DriveFile, further: &[AvailableNode], session: &Session) -> Vec<AvailableNode> {
    let entries = file.nodes().filter(|node| node.http.is_some());
    let mut names: Vec<String> =
        entries.filter_map(|node| Some(node.uri()?.address.to_string())).chain(further.iter().map(name_of)).collect();
    names.sort_unstable();
    names.dedup();
    available(&names, session).await
}

/// The parts of a drive at these nodes. A part elsewhere does not move.
fn parts_of(file: &DriveFile, nodes: &[AvailableNode]) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut bundle, mut before) = (0, None);
    for (set, entry) in file.sets.iter().enumerate() {
        if set > 0 && (entry.bundle.is_none() || entry.bundle != before) {
            bundle += 1;
        }
        before = entry.bundle;
        for (member, place) in entry.nodes.iter().enumerate() {
            if let Some(node) = nodes.iter().position(|node| node.is_of(place)) {
                parts.push(Part { set, bundle, member, node, bytes: place.size });
            }
        }
    }
    parts
}

/// Whether a node that a part has left no longer holds it.
async fn has_wiped(node: &SetNode, session: &Session) -> bool {
    let Some(export) = NodeExport::of(node, session) else { return true };
    let holds = |status: Status| status.exports.iter().any(|found| found.name == export.name);
    !export.control.status().await.is_ok_and(holds)
}

async fn take_back(node: &SetNode, session: &Session) {
    MoveRequest { to: String::new() }.leave(node, session).await.ok();
}

/// The bytes of a drive at each of its nodes.
fn bytes_of_nodes(file: &DriveFile) -> Vec<NodeBytes> {
    let mut found: Vec<(&SetNode, u64)> = Vec::new();
    for node in file.nodes() {
        match found.iter_mut().find(|(known, _)| known.http == node.http && known.instance == node.instance) {
            Some((_, bytes)) => *bytes += node.size,
            None => found.push((node, node.size)),
        }
    }
    found.into_iter().map(|(node, bytes)| NodeBytes { node: node.name.clone(), bytes }).collect()
}
