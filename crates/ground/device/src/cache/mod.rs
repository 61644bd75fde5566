//! Caches data that has crossed a slow link, so that it does not cross the link again.
//!
//! # Cached ranges
//!
//! The layer keeps all data that arrives, up to a budget, in memory or in an unnamed file in a directory. It evicts the
//! least recently used data first. A fetch is the missing part of a read, widened to whole grains of 4 KiB and no
//! further: over a slow link every byte costs time, and a caller that knows the next reads can announce them with a
//! hint.
//!
//! # Single flight
//!
//! A read that overlaps an in-flight fetch waits for that fetch. If it fails, only the reader that started it gets the
//! error; others request their own bytes again. Failures are not kept.
//!
//! # Hints
//!
//! [`Device::cache`] and [`Cache::fetch_ahead`] request a range before it is read. Hints wait in queues, by
//! [`Urgency`], and are fetched in small requests while less is in flight than keeps the link busy (`hint_window`). A
//! read never waits in those queues, so at most one more round trip's worth of bytes is ahead of it. A hint that fails
//! is not reported.
//!
//! # Correctness
//!
//! The layer is for sources, which do not change: it refuses writes. Data in a file is kept with a CRC-64 of each
//! grain, and fetched again, with a warning, if it comes back different. Memory is trusted, as everywhere in this
//! process.
//!
//! # The parts
//!
//! `engine` is the layer as a state machine that does no I/O and reads no clock; its parts are `entries`, `hint_queue`
//! and `hint_window`. `shell`, `file_writer` and `file` do the I/O.

mod engine;
mod entries;
mod file;
mod file_writer;
mod hint_queue;
mod hint_window;
mod shell;
mod stats;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use smallvec::SmallVec;

pub use self::stats::{CacheStats, Hinted};

use self::engine::{CacheEngine, CachePlan};
use self::file_writer::FileWriter;
use self::shell::{CacheShared, gather};
use crate::layer::{Layer, Reads, Writes};
use crate::{ByteRange, Data, Device, DynDevice, Io, Result, try_io};

/// Fetches begin and end at multiples of this many bytes.
const GRAIN: u64 = 4 << 10;
/// The largest request for a read, in bytes.
const DEMAND_BYTES_MAX: u64 = 1 << 20;
/// The largest request for a hint, in bytes: a read of a part of it should wait for few other bytes.
const FETCH_BYTES: u64 = 256 << 10;
/// The same while the link starts: each connection delivers little at first, so the bytes are spread over many.
const FETCH_BYTES_FIRST: u64 = 64 << 10;

/// Where a [`Cache`] keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachePlace {
    /// In memory.
    Memory,
    /// In an unnamed file in this directory.
    Directory(PathBuf),
}

/// Limits of a [`Cache`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Where data is kept.
    pub place: CachePlace,
    /// The maximum number of bytes kept. Bytes in flight, or being written to the file, come on top.
    pub budget_bytes: u64,
}

/// How soon a range will be read. More urgent hints go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Probably next.
    Next,
    /// Its content decides what to fetch next.
    Soon,
    /// At some time.
    Later,
}

impl Urgency {
    /// The number of urgencies.
    pub const COUNT: usize = 3;
    /// All urgencies, most urgent first.
    pub const ALL: [Self; Self::COUNT] = [Self::Next, Self::Soon, Self::Later];
}

/// A device that keeps the data it has read; see the [module](self). Read-only.
pub struct Cache {
    shared: Arc<CacheShared>,
}

impl Cache {
    /// Keeps data read from `inner`. Fetches run on the tokio runtime this is called in; panics outside one.
    ///
    /// # Errors
    ///
    /// If no file can be made in the directory, or its file system does not support holes.
    pub fn new(inner: DynDevice, config: CacheConfig) -> Result<Arc<Self>> {
        let engine = CacheEngine::new(inner.geometry().size, config.budget_bytes);
        let writer = match &config.place {
            CachePlace::Memory => None,
            CachePlace::Directory(dir) => Some(FileWriter::start(dir)?),
        };
        Ok(Arc::new(Self { shared: CacheShared::new(inner, engine, writer) }))
    }

    /// Fetches a range as a hint. Finishes when it is held or in flight; at once if too many hints are queued.
    pub async fn fetch_ahead(&self, range: ByteRange, urgency: Urgency) {
        if self.check(range).is_ok() && !range.is_empty() {
            self.shared.fetch_ahead(range, urgency).await;
        }
    }

    /// Takes a hint like [`Device::cache`], with an urgency.
    pub fn hint(&self, range: ByteRange, urgency: Urgency) {
        if self.check(range).is_ok() {
            self.shared.hint(range, urgency);
        }
    }

    /// Reads a range with the priority of a hint. The read does not count as use of hinted data.
    pub async fn read_in_background(&self, range: ByteRange, urgency: Urgency) -> Result<Data> {
        self.check(range)?;
        self.fetch_ahead(range, urgency).await;
        self.read_as(range, false).await
    }

    /// Returns the parts of a range that are neither held nor in flight.
    pub fn absent(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        self.shared.absent(range)
    }

    /// Whether all of a range is held, so that a read of it does not wait for the link.
    pub fn holds(&self, range: ByteRange) -> bool {
        self.shared.holds(range)
    }

    /// Returns the counters.
    pub fn stats(&self) -> CacheStats {
        self.shared.stats()
    }

    fn read_as(&self, range: ByteRange, counts: bool) -> Io<'_, Data> {
        try_io!(self.check(range));
        if range.is_empty() {
            return Io::ok(Data::new());
        }
        match self.shared.read(range, counts) {
            CachePlan::Hit(data) => Io::ok(data),
            CachePlan::Gather(steps) => Io::later(gather(&self.shared, steps)),
        }
    }
}

impl Drop for Cache {
    /// Cancels the fetches in flight, so that the device below can be closed.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Layer for Cache {
    type Below = DynDevice;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.shared.inner
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        self.read_as(range, true)
    }

    fn on_cache(&self, range: ByteRange) -> Io<'_, ()> {
        let checked = self.check(range);
        if checked.is_ok() {
            self.shared.hint(range, Urgency::Next);
        }
        Io::done(checked)
    }
}
