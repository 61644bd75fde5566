//! Draining nodes: the parts of drives that they hold move to other nodes.
//!
//! Only the holder of a drive's write leases can move its parts. A node is therefore marked as draining, and each
//! process that has a drive with redundancy open for writing moves its parts off that node. A drive that no process has
//! open for writing is moved by this process, if its file is given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cheetah_control::ControlClient;
use cheetah_control::api::{Draining, ExportStatus};
use cheetah_error::{Error, Next, Result, next};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::request::{Leaving, Step};
use super::upkeep;
use crate::file::DriveFile;
use crate::node::find::{AvailableNode, NodePlace};
use crate::node::health::node_statuses;
use crate::node::trouble;
use crate::options::OpenOptions;
use crate::session::Session;
use crate::set::arrays::Arrays;
use crate::set::newest::refresh;
use crate::timing::{DOUBT_WAIT, DRAIN_WORD_WAIT, LEASE_WAIT};

/// The interval of looks at the node.
const LOOK: Duration = Duration::from_millis(300);
/// How long the node may fail to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to drain a node.
#[derive(Debug, Clone)]
pub struct DrainOptions {
    /// Nodes that may take the parts, in the user's notation; if empty, spares of the drives and announced nodes.
    pub to: Vec<String>,
    /// Drives that this process moves, unless another has them open for writing.
    pub drives: Vec<DriveFile>,
    /// What the drives are opened with.
    pub session: Session,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Remaining {
    /// Its name.
    pub export: String,
    /// Its size.
    pub size_bytes: u64,
    /// The reason, as a clause.
    pub why: String,
    /// The next steps. In the answer, the reason names them.
    #[serde(skip)]
    pub next: Vec<Next>,
}

/// Marks a node as draining or takes the mark back.
///
/// # Errors
///
/// If it is no Cheetah node, or does not answer.
pub async fn mark(node: &AvailableNode, draining: Option<&Draining>, session: &Session) -> Result<()> {
    let marked = control(node, session)?.set_draining(draining).await;
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
    let before = words(&control(node, &options.session)?).await?;
    mark(node, Some(&Draining { to: options.to.clone() }), &options.session).await?;
    let mut opened = Vec::new();
    let drained = match open_unwritten(&options, &mut opened).await {
        Ok(()) => watch(node, &options, before, &opened, &mut progress).await,
        Err(error) => Err(error),
    };
    for Own { arrays, .. } in opened {
        if let Err(error) = arrays.close().await {
            tracing::warn!("{error}");
        }
    }
    drained
}

/// A drive that this process has open for writing.
struct Own {
    arrays: Arrays,
    /// Its exports, on all nodes.
    exports: BTreeSet<String>,
}

impl Own {
    /// Whether this process moves that export, however long that takes.
    fn moves(&self, export: &str) -> bool {
        self.exports.contains(export) && self.arrays.fence().is_none_or(|fence| !fence.is_up())
    }
}

/// Opens the drives that no process has open for writing. Their upkeep then moves their parts.
async fn open_unwritten(options: &DrainOptions, opened: &mut Vec<Own>) -> Result<()> {
    for file in &options.drives {
        let file = refresh(file, &options.session).await?;
        if node_statuses(&file, &options.session).await.iter().any(|node| node.writer.is_some()) {
            continue;
        }
        let open = OpenOptions { writable: true, ..OpenOptions::new(options.session.clone()) };
        let exports = file.nodes().filter_map(|node| Some(node.uri()?.export)).collect();
        opened.push(Own { arrays: upkeep::open(&file, &open).await?, exports });
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
    own: &[Own],
    progress: &mut (impl FnMut(DrainProgress) + Send),
) -> Result<Drained> {
    let control = control(node, &options.session)?;
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
            let is_own = own.iter().any(|drive| drive.moves(&export.name));
            remaining.extend(stuck(export, entry, is_own));
        }
        let done_bytes = (total.saturating_sub(left_bytes) + copied_bytes).min(total);
        progress(DrainProgress { done_bytes, total_bytes: total });
        if remaining.len() == count {
            return Ok(Drained { node: node.name.clone(), moved_bytes: total.saturating_sub(left_bytes), remaining });
        }
        sleep(LOOK).await;
    }
}

/// Why an export does not move, if it does not. That it takes long is no reason. `is_own`: this process is its writer.
fn stuck(export: ExportStatus, known: &Known, is_own: bool) -> Option<Remaining> {
    let is_doubtful = || known.doubted.is_some_and(|since| since.elapsed() >= DOUBT_WAIT);
    let is_unwritten = || known.leased.is_none_or(|leased| leased.elapsed() >= LEASE_WAIT);
    let is_mute = || !known.is_redundant && known.heard.elapsed() >= DRAIN_WORD_WAIT;
    let (why, next) = match (&export.lease, &known.word) {
        (_, Some(Leaving { step: Step::Stuck { why, is_certain, next }, writer, .. }))
            if *is_certain || is_doubtful() =>
        {
            (format!("{writer} says: {why}"), next.clone())
        }
        _ if is_own => return None,
        (None, _) if is_unwritten() => {
            ("no process has its drive open for writing".to_owned(), vec![next::Node::NameDrive.into()])
        }
        (Some(lease), None) if is_mute() => (
            format!(
                "{} has it open for writing, and has not said within {} s that it moves it: its drive has no redundancy (only \
             mirror and parity can be moved), or that program is older",
                lease.holder,
                DRAIN_WORD_WAIT.as_secs()
            ),
            Vec::new(),
        ),
        _ => return None,
    };
    Some(Remaining { export: export.name, size_bytes: export.size_bytes, why, next })
}

fn control(node: &AvailableNode, session: &Session) -> Result<ControlClient> {
    match &node.place {
        NodePlace::Node { http, .. } => Ok(session.control(http)),
        NodePlace::Foreign { uri } => Err(Error::misuse(format!("{uri} is no Cheetah node, and cannot be drained"))),
    }
}

#[cfg(test)]
mod tests {
    use cheetah_control::api::LeaseStatus;
    use tokio::time::advance;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// The part of a drive at a node.
    fn export(is_leased: bool) -> ExportStatus {
        let lease =
            is_leased.then(|| LeaseStatus { holder: "cheetah mount (pid 7) on lab-2".into(), expires_in_s: 20 });
        ExportStatus {
            name: "case42-0".into(),
            size_bytes: 1 << 20,
            used_bytes: 0,
            reserved: true,
            digests: true,
            connections: 1,
            lease,
            map_epoch: None,
            read_bytes: 0,
            leave_in_s: None,
            confirm_in_s: None,
        }
    }

    fn said(step: Step) -> Option<Leaving> {
        let (writer, drive) = ("cheetah mount (pid 7) on lab-2".to_owned(), "case42".to_owned());
        Some(Leaving { at_ms: 1, writer, drive, to: Vec::new(), step })
    }

    fn why(export: ExportStatus, known: &Known, is_own: bool) -> Option<String> {
        stuck(export, known, is_own).map(|remaining| remaining.why)
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_of_a_drive_with_redundancy_that_says_nothing_for_an_hour_is_waited_for() {
        let known = Known { is_redundant: true, ..Known::new() };
        advance(LONG).await;
        assert_eq!(why(export(true), &known, false), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_may_have_no_redundancy_is_given_a_minute() {
        let known = Known::new();
        advance(DRAIN_WORD_WAIT - Duration::from_secs(1)).await;
        assert_eq!(why(export(true), &known, false), None);
        advance(Duration::from_secs(1)).await;
        assert!(why(export(true), &known, false).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_moves_or_waits_is_never_given_up() {
        for step in [Step::Waiting, Step::Moving { regions_left: 1, regions: 2 }] {
            let known = Known { word: said(step), ..Known::new() };
            advance(LONG).await;
            assert_eq!(why(export(true), &known, false), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_whose_lease_ended_a_moment_ago_is_waited_for() {
        let known = Known { leased: Some(Instant::now()), ..Known::new() };
        advance(LEASE_WAIT - Duration::from_secs(1)).await;
        assert_eq!(why(export(false), &known, false), None);
        advance(Duration::from_secs(1)).await;
        assert!(stuck(export(false), &known, false).is_some_and(|left| left.next == [next::Node::NameDrive.into()]));
    }

    #[tokio::test(start_paused = true)]
    async fn this_process_is_blamed_for_nothing_but_a_refusal() {
        let known = Known::new();
        advance(LONG).await;
        for is_leased in [false, true] {
            assert_eq!(why(export(is_leased), &known, true), None);
        }
        let full = Step::Stuck { why: "no node has room".into(), is_certain: true, next: Vec::new() };
        let known = Known { word: said(full), ..Known::new() };
        assert!(why(export(true), &known, true).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubtful_reason_counts_only_once_it_lasts() {
        let slow = Step::Stuck { why: "lab-3 does not answer".into(), is_certain: false, next: Vec::new() };
        let known = Known { word: said(slow), doubted: Some(Instant::now()), ..Known::new() };
        advance(DOUBT_WAIT - Duration::from_secs(1)).await;
        assert_eq!(why(export(true), &known, true), None);
        advance(Duration::from_secs(1)).await;
        assert!(why(export(true), &known, true).is_some());
    }
}
