//! One drive that is watched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cheetah_custody::Custodian;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::chart::ChartRow;
use cheetah_drive::file::NodeSync;
use cheetah_drive::status::{Condition, DriveStatus, NodeState, status_and_chart};
use cheetah_drive::{DriveFile, ImageState, Session};
use cheetah_words::sentence;
use tokio::task::spawn_blocking;

use super::rate::Rate;
use super::records::Records;
use crate::answers::watch::{Job, JobKind, WatchedDrive};

/// Slices of a drive in its picture.
pub const SLICES: usize = 64;

/// What a drive's nodes answered.
#[derive(Debug)]
pub struct Found {
    status: DriveStatus,
    chart: Vec<ChartRow>,
    records: Arc<Records>,
    wiped: Vec<String>,
}

/// Asks the nodes of a drive, waiting for each as long as the session allows. `records` are what was read of its records
/// before.
///
/// # Errors
///
/// Why its state is not known, in words.
pub async fn ask(
    path: &Path,
    records: Arc<Records>,
    (custodian, session): (&Custodian, &Session),
) -> cheetah_error::Result<Found> {
    let file = DriveFile::load(path)?;
    let records = if records.is_of(&file) { records } else { read_records(&file, custodian).await };
    let (mut status, chart) = status_and_chart(&file, session, SLICES, &records.known).await?;
    status.diverged = status.divergence.as_ref().map(sentence);
    for node in &mut status.nodes {
        node.problem = node.problem.take().map(|problem| cheetah_words::with(problem, &node.next));
    }
    let former = file.sets.iter().flat_map(|set| &set.former);
    let wiped = file.nodes().chain(former).filter(|node| node.receipt.is_some()).map(|node| node.name.clone());
    Ok(Found { status, chart, records, wiped: wiped.collect() })
}

/// Reads the records of a drive, which may be hundreds of megabytes, apart from the threads that ask machines.
async fn read_records(file: &DriveFile, custodian: &Custodian) -> Arc<Records> {
    let (file, custodian) = (file.clone(), custodian.clone());
    Arc::new(spawn_blocking(move || Records::read(&file, &custodian)).await.unwrap_or_default())
}

/// A drive, and what was seen of it.
#[derive(Debug)]
pub struct DriveSeen {
    /// The drive file.
    pub path: PathBuf,
    shown: Option<WatchedDrive>,
    jobs: Vec<Job>,
    records: Arc<Records>,
    done: Rate,
}

impl DriveSeen {
    /// A drive that was not asked for yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, shown: None, jobs: Vec::new(), records: Arc::default(), done: Rate::default() }
    }

    /// What is known of it; `None` until it was asked for.
    pub fn shown(&self) -> Option<WatchedDrive> {
        self.shown.clone()
    }

    /// What was read of its records.
    pub fn records(&self) -> Arc<Records> {
        self.records.clone()
    }

    /// The work on it.
    pub fn jobs(&self) -> Vec<Job> {
        self.jobs.clone()
    }

    /// Notes an answer. Returns whether the states of its nodes are others than before.
    pub fn note(&mut self, answer: cheetah_error::Result<Found>) -> bool {
        let before = self.states();
        let file = path_to_text(&self.path).into_owned();
        self.shown = Some(match answer {
            Ok(Found { status, chart, records, wiped }) => {
                self.jobs = self.jobs_of(&status);
                let verification = records.verification.clone();
                self.records = records;
                WatchedDrive { chart, file, problem: None, status: Some(status), verification, wiped }
            }
            Err(error) => {
                self.jobs.clear();
                let problem = Some(sentence(&error));
                WatchedDrive { chart: Vec::new(), file, problem, status: None, verification: None, wiped: Vec::new() }
            }
        });
        before.is_some_and(|before| Some(before) != self.states())
    }

    /// The states of its nodes; `None` until it was asked for.
    fn states(&self) -> Option<Vec<NodeState>> {
        let status = self.shown.as_ref()?.status.as_ref();
        Some(status.map_or_else(Vec::new, |status| status.nodes.iter().map(|node| node.state).collect()))
    }

    fn jobs_of(&mut self, status: &DriveStatus) -> Vec<Job> {
        let writer = status.nodes.iter().find_map(|node| node.writer.clone());
        let job = |kind, total_bytes, writer| Job {
            bytes_per_s: None,
            done_bytes: None,
            drive: status.name.clone(),
            kind,
            left_s: None,
            total_bytes,
            unreadable_bytes: 0,
            unreadable_ranges: 0,
            writer,
        };
        let mut jobs = Vec::new();
        if let Some(image) = &status.image {
            match (image.state, &status.covered) {
                (Condition::Recorded(ImageState::Filling), Some(covered)) => {
                    let done_bytes = covered.read_bytes.saturating_add(covered.unreadable_bytes);
                    let bytes_per_s = self.done.note(Instant::now(), done_bytes);
                    jobs.push(Job {
                        bytes_per_s,
                        done_bytes: Some(done_bytes),
                        left_s: bytes_per_s.and_then(|rate| covered.unread_bytes.checked_div(rate)),
                        unreadable_bytes: covered.unreadable_bytes,
                        unreadable_ranges: covered.unreadable_ranges,
                        ..job(JobKind::Fill, image.size, covered.filler.clone())
                    });
                }
                (Condition::Recorded(ImageState::Loading), _) => {
                    jobs.push(job(JobKind::Load, image.size, writer.clone()));
                }
                _ => {}
            }
        }
        let behind = status.nodes.iter().filter(|node| node.sync == Some(NodeSync::Syncing));
        jobs.extend(behind.map(|node| job(JobKind::Resynchronize, node.size_bytes, writer.clone())));
        jobs
    }
}
