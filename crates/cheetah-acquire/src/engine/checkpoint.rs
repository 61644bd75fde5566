//! When to have a checkpoint, and the one that is under way.

use std::time::{Duration, Instant};

use cheetah_drive::digests::ChunkDigest;
use cheetah_image::{Error, Result};
use tokio::task::JoinHandle;

use crate::journal::{Checkpoint, Journal, Record};
use crate::reader::{Bad, Chunk};
use crate::sink::Mark;

/// A checkpoint is due after so much time in any case, so that on slow links, too, no more than that is done again.
const EVERY: Duration = Duration::from_secs(1);
/// Long records make checkpoints rarer: the journal may take up this fraction of what it covers.
const RECORD_SHARE: u64 = 256;

/// What was done since the last checkpoint was asked for, and who writes the journal.
pub struct Checkpoints {
    journal: State,
    since: Since,
    /// Where the last one was, or is going to be.
    asked_at: u64,
    /// Where the last one that is in the journal is.
    safe_at: u64,
    asked: Instant,
    record_bytes: u64,
    /// One is due after so many bytes; and with so many more behind one that is under way, it is waited for.
    every_bytes: u64,
}

enum State {
    /// Nothing is under way.
    Idle(Journal),
    /// Sinks are flushing, or the journal is being written.
    Busy(JoinHandle<Result<(Journal, Result<u64>)>>),
    /// It could not be written.
    Broken,
}

#[derive(Default)]
struct Since {
    digests: Vec<ChunkDigest>,
    bad: Vec<Bad>,
}

impl Checkpoints {
    /// Nothing done since `at`. No more than twice `every_bytes` will ever have to be done again.
    pub fn new(journal: Journal, at: u64, every_bytes: u64) -> Self {
        let (since, asked) = (Since::default(), Instant::now());
        Self { journal: State::Idle(journal), since, asked_at: at, safe_at: at, asked, record_bytes: 0, every_bytes }
    }

    /// A chunk was handed to every sink.
    pub fn note(&mut self, chunk: &Chunk) {
        self.since.digests.push(chunk.digest);
        self.since.bad.extend(chunk.bad.iter().cloned());
    }

    /// Whether one should be had at `at`.
    pub fn is_due(&self, at: u64) -> bool {
        let bytes = at - self.asked_at;
        let idle = matches!(self.journal, State::Idle(_));
        let worth_it = bytes > 0 && bytes >= self.record_bytes.saturating_mul(RECORD_SHARE);
        idle && worth_it && (bytes >= self.every_bytes || self.asked.elapsed() >= EVERY)
    }

    /// Whether too much has been done since the one that is under way.
    pub fn must_wait(&self, at: u64) -> bool {
        matches!(self.journal, State::Busy(_)) && at - self.asked_at >= self.every_bytes
    }

    /// Begins one at `at`: written once `marks` are there. None may be under way.
    pub fn begin(
        &mut self,
        at: u64,
        (retries, links_lost, active): (u64, u64, Duration),
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
            let record = Record::Checkpoint(Checkpoint { at, digests, bad, retries, links_lost, active_ms, marks });
            let write = move || {
                let written = journal.append(&record);
                (journal, written)
            };
            tokio::task::spawn_blocking(write).await.map_err(|error| died(&error))
        }));
    }

    /// Waits for the one under way; forever if there is none. May be dropped, and called again.
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

    /// Waits for the one under way, if there is one.
    pub async fn settle(&mut self) -> Result<()> {
        if matches!(self.journal, State::Busy(_)) { self.done().await } else { Ok(()) }
    }

    /// Appends a record of another kind, behind the checkpoint under way.
    pub async fn append(&mut self, record: Record) -> Result<()> {
        self.settle().await?;
        let State::Idle(mut journal) = std::mem::replace(&mut self.journal, State::Broken) else {
            return Err(Error::failed("the journal could not be written; run the same command to go on"));
        };
        let write = move || {
            let written = journal.append(&record);
            (journal, written)
        };
        let (journal, written) = tokio::task::spawn_blocking(write).await.map_err(|error| died(&error))?;
        self.journal = State::Idle(journal);
        written.map(drop)
    }

    /// Where the last one was asked for.
    pub const fn asked_at(&self) -> u64 {
        self.asked_at
    }

    /// Where everything before is safe.
    pub const fn safe_at(&self) -> u64 {
        self.safe_at
    }

    /// Gives the journal back, with nothing under way; `None` if it broke.
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
