//! Copies a source to a drive in the background, and lets everybody read the drive meanwhile.
//!
//! A read of what the drive has already is a read of the drive. A read of anything else goes to the source at once,
//! ahead of the background copy, and what comes is both the answer and a part of the copy. (The idea is that of
//! fusecoraw, which put a cache between a slow link and the tools; here the cache is the drive itself, and it fills.)
//!
//! # Exactly once
//!
//! A byte is read from the source once. Whoever wants what is on its way waits for it; requests are widened to
//! multiples of 64 KiB, so that what is covered stays in few runs; and what has arrived answers readers from memory
//! until the drive has acknowledged it, and from the drive from then on. There are four exceptions: what was not
//! yet recorded when the process was killed; what the drive would not take; what it was caught giving back otherwise
//! ([`CopyOnRead::forget`]); and, around a bad sector, the requests that failed, which brought nothing.
//!
//! # Right or not at all
//!
//! * Nothing is read from the drive that was not written to it first: where the copy has not been yet, a drive is
//!   full of zeros that mean nothing.
//! * What the source cannot read is asked for in smaller pieces, down to a sector, and then never again. It is an
//!   error to every reader, and `unreadable` in the coverage.
//! * If the source does not answer at all, whoever waits for it gets the error; everything that is there goes on
//!   working, and the background tries again, ever more rarely, until the source is back.
//! * The coverage that is recorded is that of a moment *before* a flush of the drive that succeeded. So a record is
//!   never ahead of what the drive has on stable storage, whenever this process dies.
//!
//! # Who goes first
//!
//! What a reader waits for is sent at once; but it queues behind what is on its way already. So the background keeps
//! what it has on its way small while anyone reads, and fills the link when nobody does (`copy_pacer`).
//!
//! # The parts
//!
//! `engine` is the whole of it as a state machine that does no I/O and reads no clock; its parts are `flights`,
//! `suspects` and `copy_pacer`. This file and `shell` are what is thin around it.

mod copy_pacer;
mod engine;
mod flights;
mod shell;
#[cfg(test)]
mod simulation;
mod suspects;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::engine::Engine;
use self::shell::{Asked, Shared, gather};
use crate::coverage::State;
use crate::{ByteRange, Coverage, Data, Device, DynDevice, Error, Extent, Geometry, Io, Result};

/// The source is asked for multiples of so many bytes, at multiples of so many bytes, but for its end and for what is
/// near a bad sector.
pub const GRAIN: u64 = 64 << 10;
/// The largest request to the source, in bytes.
const FETCH_BYTES_MAX: u64 = 1 << 20;

/// How to copy.
#[derive(Debug, Clone)]
pub struct CopyOnReadConfig {
    /// How errors name the source.
    pub source_name: Arc<str>,
    /// What a bad sector takes of the source: nothing smaller is asked for. A power of two up to [`GRAIN`].
    pub sector_bytes: u64,
    /// What may be in memory between source and drive for the background's sake, in bytes.
    pub memory_bytes: u64,
    /// How often coverage is recorded.
    pub record_every: Duration,
}

impl CopyOnReadConfig {
    /// Sectors of 512 bytes, 32 MiB of memory, a record every 3 s.
    pub fn new(source_name: impl Into<Arc<str>>) -> Self {
        Self {
            source_name: source_name.into(),
            sector_bytes: 512,
            memory_bytes: 32 << 20,
            record_every: Duration::from_secs(3),
        }
    }
}

/// How far a copy has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Bytes in the source.
    pub size: u64,
    /// Bytes the drive has.
    pub read: u64,
    /// Bytes the source could not read.
    pub unreadable: u64,
    /// Whether all of this has been recorded.
    pub recorded: bool,
    /// Why the source did not answer when it was last asked.
    pub source_trouble: Option<Error>,
    /// Why the drive did not take what it was last given.
    pub drive_trouble: Option<Error>,
}

impl Progress {
    /// Whether there is nothing left to ask the source for.
    pub const fn is_settled(&self) -> bool {
        self.read + self.unreadable == self.size
    }

    /// Whether it is settled, and recorded.
    pub const fn is_done(&self) -> bool {
        self.is_settled() && self.recorded
    }
}

/// Who keeps account of a copy.
pub trait Ledger: Send + Sync {
    /// This came from the source, and is about to be written to the drive.
    fn passed(&self, range: ByteRange, data: &Data);

    /// The drive has flushed everything that `coverage` calls read: to be put on stable storage.
    fn record(&self, coverage: Coverage) -> Io<'_, ()>;
}

/// A source on its way to a drive; see the [module](self). Read-only.
pub struct CopyOnRead {
    shared: Arc<Shared>,
}

impl CopyOnRead {
    /// Copies `source` to the start of `drive`, which has what `coverage` says already. Tasks run on the tokio runtime
    /// this is called in; panics outside one. [`close`](Self::close) it: dropped, it stops, and records nothing.
    ///
    /// # Errors
    ///
    /// If the coverage is not of the source's size, or the drive is smaller.
    pub fn start(
        source: DynDevice,
        drive: DynDevice,
        coverage: Coverage,
        ledger: Arc<dyn Ledger>,
        config: CopyOnReadConfig,
    ) -> Result<Arc<Self>> {
        let (size, covered, room) = (source.geometry().size, coverage.size(), drive.geometry().size);
        if size != covered || size > room {
            let why = format!("a source of {size} bytes, a map of {covered} and a drive of {room} do not go together");
            return Err(Error::Invalid(why.into()));
        }
        let shared = Shared::start(source, drive, ledger, Engine::new(config, coverage));
        Ok(Arc::new(Self { shared }))
    }

    /// How far it has come, now and as it goes on.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.shared.progress()
    }

    /// What the drive has now.
    pub fn coverage(&self) -> Coverage {
        self.shared.engine().coverage().clone()
    }

    /// What the drive has in these ranges turned out not to be what the source sent: it is unread again, and never
    /// served from now on. It is fetched anew, by whoever reads it or by the background; once [closed](Self::close),
    /// reads of it fail. What could not be read from the source stays as it is, and so does what lies behind its end.
    pub fn forget(&self, ranges: &[ByteRange]) {
        self.shared.forget(ranges);
    }

    /// Stops copying, waits for what is being written, and records how far it came. Reads of what the drive has go on
    /// working.
    pub async fn close(&self) -> Result<()> {
        self.shared.close().await
    }
}

impl Drop for CopyOnRead {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Device for CopyOnRead {
    /// The source's size.
    fn geometry(&self) -> Geometry {
        Geometry { size: self.shared.source.geometry().size, writable: false, ..self.shared.drive.geometry() }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        if range.is_empty() || self.shared.is_whole() {
            return self.shared.drive.read(range);
        }
        match self.shared.read(range) {
            Asked::Now(Err(error)) => Io::fail(error),
            Asked::Now(Ok(pieces)) => gather(&self.shared.drive, pieces),
            Asked::Later(waiting) => {
                Io::later(async move { gather(&self.shared.drive, waiting.answer().await?).await })
            }
        }
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        let runs: Vec<_> = self.shared.engine().coverage().runs(range).collect();
        Io::later(async move {
            let mut extents = Vec::new();
            for (run, state) in runs {
                // What a drive has where nothing was written to it yet is a hole, and not the source's.
                let found = match state {
                    State::Read => self.shared.drive.extents(run).await?,
                    State::Unread | State::Unreadable => vec![Extent::data(run.len)],
                };
                found.into_iter().for_each(|extent| extent.push(&mut extents));
            }
            Ok(extents)
        })
    }
}
