//! One drive that is watched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cheetah_custody::Custodian;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::chart::ChartRow;
use cheetah_drive::status::{DriveStatus, NodeState, status_and_chart};
use cheetah_drive::{DriveFile, Session};
use cheetah_words::sentence;
use tokio::task::spawn_blocking;

use super::jobs::Jobs;
use super::records::Records;
use crate::answers::watch::{Job, WatchedDrive};

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
    jobs: Jobs,
    records: Arc<Records>,
}

impl DriveSeen {
    /// A drive that was not asked for yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, shown: None, jobs: Jobs::default(), records: Arc::default() }
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
        self.jobs.shown().to_vec()
    }

    /// Notes an answer. Returns whether the states of its nodes are others than before.
    pub fn note(&mut self, answer: cheetah_error::Result<Found>) -> bool {
        let before = self.states();
        let file = path_to_text(&self.path).into_owned();
        self.shown = Some(match answer {
            Ok(Found { status, chart, records, wiped }) => {
                self.jobs.note(&status, Instant::now());
                let verification = records.verification.clone();
                self.records = records;
                WatchedDrive { chart, file, problem: None, status: Some(status), verification, wiped }
            }
            Err(error) => {
                self.jobs = Jobs::default();
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
}
