//! Copies a source to a drive in the background, while reads of the drive are answered.
//!
//! A read of a range that the drive has is answered by the drive. Any other read is sent to the source at once, ahead
//! of the background copy, and its data is both the answer and a part of the copy. (fusecoraw put a cache between a
//! slow link and the tools. Here the drive itself is that cache.)
//!
//! # Exactly once
//!
//! A byte is read from the source once. A read that overlaps an in-flight fetch waits for that fetch. Requests are
//! widened to multiples of 64 KiB, so that the coverage has few runs. Data that has arrived is served from memory until
//! the drive has acknowledged it, and from the drive after that. There are four exceptions: data that was not recorded
//! when the process was killed; data that the drive did not accept; data that the drive was found to return wrong
//! ([`CopyOnRead::forget`]); and failed requests around a bad sector, which returned nothing.
//!
//! # Correctness
//!
//! * No range is read from the drive before it has been written there: until then the drive returns zeros, which are
//!   not the source's content.
//! * A range the source cannot read is retried in smaller units, down to a sector, and then never again. It is an error
//!   to every reader, and `unreadable` in the coverage.
//! * If the source does not answer at all, the reads that wait for it fail; reads of copied ranges still succeed,
//!   and the background copy retries, at growing intervals, until the source is back.
//! * The recorded coverage is that of a moment *before* a successful flush of the drive. So every range recorded as
//!   read is on the drive's stable storage, even if this process is killed at any moment.
//!
//! # Priority
//!
//! A demand read is sent at once, but queues behind the requests in flight. So the background copy keeps few bytes in
//! flight while any reader waits, and fills the link when none waits (`copy_pacer`).
//!
//! # The parts
//!
//! `engine` is the layer as a state machine that does no I/O and reads no clock; its parts are `transfers`, `suspects`
//! and `copy_pacer`. `shell` does the I/O.

mod copy_pacer;
mod engine;
mod shell;
#[cfg(test)]
mod simulation;
mod suspects;
#[cfg(test)]
mod tests;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::engine::CopyEngine;
use self::shell::{CopyAnswer, CopyShared, gather};
use crate::coverage::State;
use crate::{ByteRange, Coverage, Data, Device, DynDevice, Error, Extent, Geometry, Io, Result, try_io};

/// The alignment and granularity of requests to the source, in bytes, except at its end and near a bad sector.
pub const GRAIN: u64 = 64 << 10;
/// The largest request to the source, in bytes.
const FETCH_BYTES_MAX: u64 = 1 << 20;

/// Limits of a [`CopyOnRead`].
#[derive(Debug, Clone)]
pub struct CopyOnReadConfig {
    /// How errors name the source.
    pub source_name: Arc<str>,
    /// The sector size of the source, the smallest request. A power of two up to [`GRAIN`].
    pub sector_bytes: u64,
    /// The memory the background copy may take between source and drive, in bytes.
    pub memory_bytes: u64,
    /// The interval at which the coverage is recorded.
    pub record_every: Duration,
}

impl CopyOnReadConfig {
    /// Returns the defaults: sectors of 512 bytes, 32 MiB of memory, a record every 3 s.
    pub fn new(source_name: impl Into<Arc<str>>) -> Self {
        Self {
            source_name: source_name.into(),
            sector_bytes: 512,
            memory_bytes: 32 << 20,
            record_every: Duration::from_secs(3),
        }
    }
}

/// The progress of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Bytes in the source.
    pub size: u64,
    /// Bytes the drive has.
    pub read: u64,
    /// Bytes the source could not read.
    pub unreadable: u64,
    /// Whether this has been recorded.
    pub recorded: bool,
    /// The error of the source's last answer, if it failed.
    pub source_trouble: Option<Error>,
    /// The error of the last write to the drive, if it failed.
    pub drive_trouble: Option<Error>,
}

impl Progress {
    /// Whether there is nothing left to request from the source.
    pub const fn is_settled(&self) -> bool {
        self.read + self.unreadable == self.size
    }

    /// Whether it is settled, and recorded.
    pub const fn is_done(&self) -> bool {
        self.is_settled() && self.recorded
    }
}

/// Keeps the record of a copy.
pub trait CopyRecord: Send + Sync {
    /// Takes data that has arrived from the source and is about to be written to the drive.
    fn passed(&self, range: ByteRange, data: &Data);

    /// Puts a coverage on stable storage. The drive has flushed every range that the coverage calls read.
    fn record(&self, coverage: Coverage) -> Io<'_, ()>;
}

/// A source that is being copied to a drive; see the [module](self). Read-only.
pub struct CopyOnRead {
    shared: Arc<CopyShared>,
}

impl CopyOnRead {
    /// Copies `source` to the start of `drive`, which already has the ranges that are `Read` in `coverage`. Tasks run
    /// on the tokio runtime this is called in; panics outside one. End with [`close`](Self::close): if dropped, the
    /// copy stops without a record.
    ///
    /// # Errors
    ///
    /// If the coverage and the source differ in size, or the drive is smaller.
    pub fn start(
        source: DynDevice,
        drive: DynDevice,
        coverage: Coverage,
        record: Arc<dyn CopyRecord>,
        config: CopyOnReadConfig,
    ) -> Result<Arc<Self>> {
        let (size, covered, room) = (source.geometry().size, coverage.size(), drive.geometry().size);
        if size != covered || size > room {
            let why = format!("a source of {size} bytes, a map of {covered} and a drive of {room} do not go together");
            return Err(Error::Invalid(why.into()));
        }
        let shared = CopyShared::start(source, drive, record, CopyEngine::new(config, coverage));
        Ok(Arc::new(Self { shared }))
    }

    /// Returns the progress, now and as it changes.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.shared.progress()
    }

    /// Returns the ranges on the drive.
    pub fn coverage(&self) -> Coverage {
        self.shared.engine().coverage().clone()
    }

    /// Marks these ranges as unread again, because the drive's content differs from the data that the source sent. They
    /// are never served from the drive until they have been fetched again, by a read or by the background copy; once
    /// [closed](Self::close), reads of them fail. Unreadable ranges stay unreadable.
    pub fn forget(&self, ranges: &[ByteRange]) {
        self.shared.forget(ranges);
    }

    /// Stops copying, waits for writes in progress, and records the coverage. Reads of copied ranges still succeed.
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
        try_io!(self.check(range));
        if range.is_empty() || self.shared.is_whole() {
            return self.shared.drive.read(range);
        }
        match self.shared.read(range) {
            CopyAnswer::Now(Err(error)) => Io::fail(error),
            CopyAnswer::Now(Ok(parts)) => gather(&self.shared.drive, parts),
            CopyAnswer::Later(waiting) => {
                Io::later(async move { gather(&self.shared.drive, waiting.answer().await?).await })
            }
        }
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        try_io!(self.check(range));
        let runs: Vec<_> = self.shared.engine().coverage().runs(range).collect();
        Io::later(async move {
            let mut extents = Vec::new();
            for (run, state) in runs {
                // Where the drive has not been written, its holes are not the source's.
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
