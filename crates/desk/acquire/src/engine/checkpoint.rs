//! Deciding when a checkpoint is due, and writing the one in progress.

use std::time::{Duration, Instant};

use cheetah_drive::digests::ChunkDigest;
use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result};
use cheetah_image::{BadRange, HashedStart};
use tokio::task::JoinHandle;

use crate::journal::{Checkpoint, Journal, JournalRecord};
use crate::reader::Chunk;
use crate::sink::Mark;

/// A checkpoint is due after this time, which bounds the repeated work on slow links.
const EVERY: Duration = Duration::from_secs(1);
/// The journal may take up this fraction of the bytes it covers; longer records make checkpoints rarer.
const RECORD_SHARE: u64 = 256;

/// The work since the last checkpoint was started, and the journal.
pub struct Checkpoints {
    journal: State,
    since: Since,
    /// The offset of the last checkpoint that was started.
    asked_at: u64,
    /// The offset of the last checkpoint in the journal.
    safe_at: u64,
    asked: Instant,
    record_bytes: u64,
    /// A checkpoint is due after this many bytes. When as many more are done while it is written, the pass waits for it.
    every_bytes: u64,
}

enum State {
    /// No checkpoint is in progress.
    Idle(Journal),
    /// Sinks are flushing, or the journal is being written.
    Busy(JoinHandle<Result<(Journal, Result<u64>)>>),
    /// The journal could not be written.
    Broken,
}

#[derive(Default)]
struct Since {
    digests: Vec<ChunkDigest>,
    bad: Vec<BadRange>,
}

impl Checkpoints {
    /// Starts at `at`. At most twice `every_bytes` are read again after an interruption.
    pub fn new(journal: Journal, at: u64, every_bytes: u64) -> Self {
        let (since, asked) = (Since::default(), Instant::now());
        Self { journal: State::Idle(journal), since, asked_at: at, safe_at: at, asked, record_bytes: 0, every_bytes }
    }

    /// Notes a chunk that was handed to every sink.
    pub fn note(&mut self, chunk: &Chunk) {
        self.since.digests.push(chunk.digest);
        self.since.bad.extend(chunk.bad.iter().cloned());
    }

    /// Returns whether a checkpoint is due at `at`.
    pub fn is_due(&self, at: u64) -> bool {
        let bytes = at - self.asked_at;
        let idle = matches!(self.journal, State::Idle(_));
        let worth_it = bytes > 0 && bytes >= self.record_bytes.saturating_mul(RECORD_SHARE);
        idle && worth_it && (bytes >= self.every_bytes || self.asked.elapsed() >= EVERY)
    }

    /// Returns whether the pass has to wait for the checkpoint in progress.
    pub fn must_wait(&self, at: u64) -> bool {
        matches!(self.journal, State::Busy(_)) && at - self.asked_at >= self.every_bytes
    }

    /// Starts a checkpoint at `at`, which is written once `marks` resolves. None may be in progress.
    pub fn begin(
        &mut self,
        at: u64,
        (retries, links_lost, active): (u64, u64, Duration),
        files: Vec<HashedStart>,
        marks: impl Future<Output = Result<Vec<Mark>>> + Send + 'static,
    ) {
        let State::Idle(mut journal) = std::mem::replace(&mut self.journal, State::Broken) else { return };
        let Since { digests, bad } = std::mem::take(&mut self.since);
        let active_ms = u64::try_from(active.as_millis()).unwrap_or(u64::MAX);
        (self.asked_at, self.asked) = (at, Instant::now());
        self.journal = State::Busy(tokio::spawn(async move {
            let marks = match marks.await {
                Ok(marks) => marks,
                Err(error) => return Ok((journal, Err(error))),
            };
            let record = JournalRecord::Checkpoint(Checkpoint {
                at,
                digests,
                bad,
                retries,
                links_lost,
                active_ms,
                files,
                marks,
            });
            let write = move || {
                let written = journal.append(&record);
                (journal, written)
            };
            tokio::task::spawn_blocking(write).await.map_err(|error| died(&error))
        }));
    }

    /// Waits for the checkpoint in progress; forever if there is none. Cancel-safe.
    pub async fn done(&mut self) -> Result<()> {
        let State::Busy(task) = &mut self.journal else { return std::future::pending().await };
        let joined = task.await;
        self.journal = State::Broken;
        let (journal, written) = joined.map_err(|error| died(&error))??;
        self.journal = State::Idle(journal);
        self.record_bytes = written?;
        self.safe_at = self.asked_at;
        Ok(())
    }

    /// Waits for the checkpoint in progress, if there is one.
    pub async fn settle(&mut self) -> Result<()> {
        if matches!(self.journal, State::Busy(_)) { self.done().await } else { Ok(()) }
    }

    /// Appends a record of another kind, behind the checkpoint in progress.
    pub async fn append(&mut self, record: JournalRecord) -> Result<()> {
        self.settle().await?;
        let State::Idle(mut journal) = std::mem::replace(&mut self.journal, State::Broken) else {
            return Err(Error::failed("the journal could not be written").next(Acquisition::GoOn));
        };
        let write = move || {
            let written = journal.append(&record);
            (journal, written)
        };
        let (journal, written) = tokio::task::spawn_blocking(write).await.map_err(|error| died(&error))?;
        self.journal = State::Idle(journal);
        written.map(drop)
    }

    /// Returns the offset of the last checkpoint that was started.
    pub const fn asked_at(&self) -> u64 {
        self.asked_at
    }

    /// Returns the offset before which everything is durable.
    pub const fn safe_at(&self) -> u64 {
        self.safe_at
    }

    /// Returns the journal; `None` if it could not be written or is being written.
    pub async fn close(self) -> Option<Journal> {
        match self.journal {
            State::Idle(journal) => Some(journal),
            State::Busy(_) | State::Broken => None,
        }
    }
}

fn died(error: &tokio::task::JoinError) -> Error {
    Error::failed(format!("writing the journal: {error}"))
}
