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
use crate::lease::TTL_S;
use crate::node::find::{AvailableNode, NodePlace};
use crate::node::health::node_statuses;
use crate::node::trouble;
use crate::options::OpenOptions;
use crate::redundancy::arrays::Arrays;
use crate::redundancy::newest::refresh;
use crate::redundancy::request::{Leaving, Step};

/// The interval of looks at the node.
const LOOK: Duration = Duration::from_millis(300);
/// How long the writer of an export may say nothing where nothing shows whether it moves parts. A writer that does looks
/// every second, but the machine may be busy.
const WORD_WAIT: Duration = Duration::from_secs(60);
/// How long a writer's lease may have ended before the writer counts as gone: it takes it again if it was only slow.
const LEASE_WAIT: Duration = Duration::from_secs(2 * TTL_S);
/// How long a part may not move for reasons that a busy machine may have, too.
const DOUBT_WAIT: Duration = Duration::from_secs(60);
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
    // Words that are there already are of an earlier attempt.
    let before = words(&control(node, options.timeout)?).await?;
    mark(node, Some(&Draining { to: options.to.clone() }), options.timeout).await?;
    let mut opened = Vec::new();
    let drained = match open_unwritten(&options, &mut opened).await {
        Ok(()) => watch(node, &options, before, &mut progress).await,
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

/// The last words at a node, by export.
type Words = BTreeMap<String, Leaving>;

async fn words(control: &ControlClient) -> Result<Words> {
    let status = control.status().await.map_err(|error| Error::failed(error.to_string()))?;
    let mut words = Words::new();
    for export in status.exports {
        if let Some(word) = word(control, &export.name).await {
            words.insert(export.name, word);
        }
    }
    Ok(words)
}

async fn word(control: &ControlClient, export: &str) -> Option<Leaving> {
    let notes = control.notes(export).await.ok()?;
    serde_json::from_str::<Leaving>(notes.notes.get(Leaving::NOTE)?).ok()
}

/// What is known about an export.
struct Known {
    /// The last word of its writer in this attempt.
    word: Option<Leaving>,
    /// When it was heard, or since when it is waited for.
    heard: Instant,
    /// When the export was last leased.
    leased: Option<Instant>,
    /// Since when it does not move for reasons that a busy machine may have, too.
    doubted: Option<Instant>,
    /// Whether its drive has redundancy, because a writer stored a map: its writer moves it, however slow it is.
    is_redundant: bool,
}

impl Known {
    fn new() -> Self {
        Self { word: None, heard: Instant::now(), leased: None, doubted: None, is_redundant: false }
    }

    /// Takes what the node says now.
    async fn look(&mut self, control: &ControlClient, export: &ExportStatus, to: &[String], before: &Words) {
        let word = word(control, &export.name).await.filter(|word| word.to == to);
        if let Some(word) =
            word.filter(|word| before.get(&export.name) != Some(word) && self.word.as_ref() != Some(word))
        {
            (self.word, self.heard) = (Some(word), Instant::now());
        }
        if export.lease.is_some() {
            self.leased = Some(Instant::now());
        }
        self.is_redundant |= matches!(control.map(&export.name).await, Ok(Some(_)));
        match self.word.as_ref().map(|word| &word.step) {
            Some(Step::Stuck { is_certain: false, .. }) => {
                self.doubted.get_or_insert_with(Instant::now);
            }
            Some(_) => self.doubted = None,
            None => {}
        }
    }
}

async fn watch(
    node: &AvailableNode,
    options: &DrainOptions,
    before: Words,
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
            let entry = known.entry(export.name.clone()).or_insert_with(Known::new);
            entry.look(&control, &export, &options.to, &before).await;
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

/// Why an export does not move, if it does not. That it takes long is no reason.
fn stuck(export: ExportStatus, known: &Known) -> Option<Remaining> {
    let why = match (&export.lease, &known.word) {
        (_, Some(Leaving { step: Step::Stuck { why, is_certain }, writer, .. }))
            if *is_certain || known.doubted.is_some_and(|since| since.elapsed() >= DOUBT_WAIT) =>
        {
            format!("{writer} says: {why}")
        }
        (None, _) if known.leased.is_none_or(|leased| leased.elapsed() >= LEASE_WAIT) => {
            "no process has its drive open for writing; name its file with --drive".to_owned()
        }
        (Some(lease), None) if !known.is_redundant && known.heard.elapsed() >= WORD_WAIT => format!(
            "{} has it open for writing, and has not said within {} s that it moves it: its drive has no redundancy (only \
             mirror and parity can be moved), or that program is older",
            lease.holder,
            WORD_WAIT.as_secs()
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
