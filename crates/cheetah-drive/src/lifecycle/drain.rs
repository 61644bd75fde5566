//! Draining nodes: the parts of drives that they hold move to other nodes.
//!
//! Only the holder of a drive's write leases can move its parts. A node is therefore marked as draining, and each
//! process that has a drive with redundancy open for writing moves its parts off that node. A drive that no process has
//! open for writing is moved by this process, if its file is given.

use std::collections::BTreeMap;
use std::time::Duration;

use cheetah_control::ControlClient;
use cheetah_control::api::{Draining, ExportStatus};
use cheetah_error::{Error, Result};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::file::DriveFile;
use crate::node::find::{AvailableNode, NodePlace};
use crate::node::health::node_statuses;
use crate::node::trouble;
use crate::options::OpenOptions;
use crate::redundancy::arrays::Arrays;
use crate::redundancy::newest::refresh;
use crate::redundancy::request::{Leaving, Step};

/// The interval of looks at the node.
const LOOK: Duration = Duration::from_millis(300);
/// The longest wait for word from a process that holds an export's lease. Such a process looks every second.
const WORD_WAIT: Duration = Duration::from_secs(10);
/// How long the node may fail to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to drain a node.
#[derive(Debug, Clone)]
pub struct DrainOptions {
    /// Nodes that may take the parts, in the user's notation; if empty, spares of the drives and announced nodes.
    pub to: Vec<String>,
    /// Drives that this process moves, unless another has them open for writing.
    pub drives: Vec<DriveFile>,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// The progress of draining a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainProgress {
    /// Bytes of parts that have left, estimated.
    pub done_bytes: u64,
    /// Bytes of the parts that were there at the beginning.
    pub total_bytes: u64,
}

/// The result of draining a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drained {
    /// The node.
    pub node: String,
    /// Bytes of the parts that have left.
    pub moved_bytes: u64,
    /// Exports that remain, and why.
    pub remaining: Vec<Remaining>,
}

/// An export that could not be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remaining {
    /// Its name.
    pub export: String,
    /// Its size.
    pub size_bytes: u64,
    /// The reason, as a clause.
    pub why: String,
}

/// Marks a node as draining or takes the mark back.
///
/// # Errors
///
/// If it is no Cheetah node, or does not answer.
pub async fn mark(node: &AvailableNode, draining: Option<&Draining>, timeout: Duration) -> Result<()> {
    let marked = control(node, timeout)?.set_draining(draining).await;
    marked.map_err(|error| trouble::of_call(trouble::sentence(&node.name, &error), &error))
}

/// Marks a node as draining, and waits until no part of a drive is left there, or until none of those left can be moved
/// now. The mark stays.
///
/// # Errors
///
/// If the node does not answer, or one of the drives has no redundancy or cannot be opened.
pub async fn drain(
    node: &AvailableNode,
    options: DrainOptions,
    mut progress: impl FnMut(DrainProgress) + Send,
) -> Result<Drained> {
    for file in &options.drives {
        if !file.is_redundant() {
            return Err(Error::failed(format!(
                "{} is {}: its parts cannot be moved, because only mirror and parity are read and written while they \
                 move; save its image and load it into another drive",
                file.name,
                file.sets.iter().map(|set| set.describe()).collect::<Vec<_>>().join(" and ")
            )));
        }
    }
    mark(node, Some(&Draining { to: options.to.clone() }), options.timeout).await?;
    let mut opened = Vec::new();
    let drained = match open_unwritten(&options, &mut opened).await {
        Ok(()) => watch(node, &options, &mut progress).await,
        Err(error) => Err(error),
    };
    for drive in opened {
        if let Err(error) = drive.close().await {
            tracing::warn!("{error}");
        }
    }
    drained
}

/// Opens the drives that no process has open for writing. Their upkeep then moves their parts.
async fn open_unwritten(options: &DrainOptions, opened: &mut Vec<Arrays>) -> Result<()> {
    for file in &options.drives {
        let file = refresh(file, options.timeout).await?;
        if node_statuses(&file, options.timeout).await.iter().any(|node| node.writer.is_some()) {
            continue;
        }
        let open = OpenOptions { writable: true, timeout: options.timeout, ..OpenOptions::default() };
        opened.push(Arrays::open(&file, &open).await?);
    }
    Ok(())
}

/// The last word about an export.
struct Known {
    /// The last word of its writer, and since when it is known.
    word: Option<Leaving>,
    since: Instant,
    is_fresh: bool,
}

async fn watch(
    node: &AvailableNode,
    options: &DrainOptions,
    progress: &mut (impl FnMut(DrainProgress) + Send),
) -> Result<Drained> {
    let control = control(node, options.timeout)?;
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let (mut total_bytes, mut answered) = (None, Instant::now());
    loop {
        let exports = match control.status().await {
            Ok(status) => status.exports,
            Err(error) if answered.elapsed() >= PATIENCE || error.is_refusal() => {
                return Err(trouble::of_call(trouble::sentence(&node.name, &error), &error));
            }
            Err(_) => {
                sleep(LOOK).await;
                continue;
            }
        };
        answered = Instant::now();
        let left_bytes: u64 = exports.iter().map(|export| export.size_bytes).sum();
        let total = *total_bytes.get_or_insert(left_bytes);
        let (mut remaining, mut copied_bytes) = (Vec::new(), 0);
        let count = exports.len();
        for export in exports {
            let entry = known.entry(export.name.clone()).or_insert(Known {
                word: None,
                since: Instant::now(),
                is_fresh: false,
            });
            let word = control.notes(&export.name).await.ok();
            let word = word.and_then(|notes| serde_json::from_str::<Leaving>(notes.notes.get(Leaving::NOTE)?).ok());
            let word = word.filter(|word| word.to == options.to);
            if word != entry.word {
                // The first word may be that of an earlier attempt.
                entry.is_fresh = entry.word.is_some() || entry.since.elapsed() >= LOOK / 2;
                (entry.word, entry.since) = (word, Instant::now());
            }
            if let Some(Step::Moving { regions_left, regions }) = entry.word.as_ref().map(|word| &word.step) {
                copied_bytes += export.size_bytes / (*regions).max(1) * regions.saturating_sub(*regions_left);
            }
            remaining.extend(stuck(export, entry));
        }
        let done_bytes = (total.saturating_sub(left_bytes) + copied_bytes).min(total);
        progress(DrainProgress { done_bytes, total_bytes: total });
        if remaining.len() == count {
            return Ok(Drained { node: node.name.clone(), moved_bytes: total.saturating_sub(left_bytes), remaining });
        }
        sleep(LOOK).await;
    }
}

/// Why an export does not move, if it does not.
fn stuck(export: ExportStatus, known: &Known) -> Option<Remaining> {
    let why = match (&export.lease, &known.word) {
        (None, _) => "no process has its drive open for writing; name its file with --drive".to_owned(),
        (Some(_), Some(Leaving { step: Step::Stuck { why }, writer, .. })) if known.is_fresh => {
            format!("{writer} says: {why}")
        }
        (Some(lease), _) if known.since.elapsed() >= WORD_WAIT => format!(
            "{} has it open for writing and does not move it: its drive has no redundancy (only mirror and parity can \
             be moved), or that program is older",
            lease.holder
        ),
        _ => return None,
    };
    Some(Remaining { export: export.name, size_bytes: export.size_bytes, why })
}

fn control(node: &AvailableNode, timeout: Duration) -> Result<ControlClient> {
    match &node.place {
        NodePlace::Node { http, .. } => Ok(ControlClient::new(http).with_timeout(timeout)),
        NodePlace::Foreign { uri } => Err(Error::misuse(format!("{uri} is no Cheetah node, and cannot be drained"))),
    }
}
