//! Reads ahead of readers that follow a pattern, so that the link to the device is busy while a reader processes data.
//!
//! The layer watches the reads that pass. Reads that follow no pattern go straight to the device, unchanged, and leave
//! only an entry in a short history. A stream of reads is followed by a cursor, and the bytes ahead of it are fetched
//! before they are requested.
//!
//! # Detecting a stream
//!
//! Three adjacent reads are a stream, going up or down; four reads at equal distances are a strided one. The history is
//! a set, not a sequence, so streams may interleave and reads may arrive in any order (a kernel's read-ahead and a
//! client with several threads both cause that). Once detected, a stream owns every read near its position; a read far
//! from all streams disturbs none.
//!
//! # The read-ahead window
//!
//! A stream's window begins at 128 KiB. It doubles whenever the reader *starves*, that is, requests bytes that are not
//! held yet. It does not grow merely because a stream continues: a slow reader needs no larger window. Its limits are
//! the window of the link (`link_window`), twice the measured bandwidth-delay product, and an equal share of the memory
//! budget. No more than the window of the link is in flight for all streams together, so a read that must go to the
//! device never finds a long queue before it; and a read's own bytes are always requested before anything is fetched on
//! its account.
//!
//! Sequential streams are fetched in aligned chunks of a quarter of the window, 64 KiB to 1 MiB. Of a strided stream
//! only the records are fetched, many at a time, unless carrying the gaps takes less time than the requests they save.
//!
//! The thesis on which this design is based doubled its read-ahead from 4 KiB to 128 KiB with each adjacent block, and
//! fell back to 4 KiB at the first other read. It followed a single stream, forward only, and lost it at any read in
//! between.
//!
//! # Resident data
//!
//! Chunks are held until they have been read, and a little longer; then they are the first to be dropped when memory is
//! needed. Unread chunks are dropped only when their stream is idle: not read from for two seconds, or while others read
//! as many bytes as the budget has. Until then, a stream that needs room fetches nothing. A read that overlaps an
//! in-flight fetch waits for that fetch, and requests only the rest from the device.
//!
//! # Correctness
//!
//! * A write drops the data it overlaps *when it ends*, fetches in flight included: a fetch that started before that
//!   may return either content. Nothing is fetched ahead where a write is in flight, nor ever again where one has
//!   failed.
//! * A failed fetch is not an error. Readers that wait for it request their bytes themselves; the stream's window
//!   closes, and opens again some distance behind the place.
//! * The layer does not see writes that reach the device without passing through it.
//!
//! # The parts
//!
//! `engine` is the layer as a state machine that does no I/O and reads no clock; its parts are `cursors` (with
//! `cursor`, `pattern` and `history`), `chunk_cache` (with `chunk`), `link_window`, `writes` and `hints`. `shell` does
//! the I/O.

mod chunk;
mod chunk_cache;
mod cursor;
mod cursors;
mod engine;
mod hints;
mod history;
mod link_window;
mod pattern;
mod shell;
#[cfg(test)]
mod simulation;
mod stats;
#[cfg(test)]
mod tests;
mod writes;

use std::sync::Arc;

pub use self::pattern::{Direction, Pattern};
pub use self::stats::{PrefetchStats, StreamStats};

use self::engine::{PrefetchEngine, PrefetchPlan};
use self::shell::{DemandGuard, PrefetchShared, WriteGuard, gather, spawn_all};
use crate::layer::{Layer, Reads, Writes};
use crate::{ByteRange, Data, Device, DynDevice, Io, Result, Zeroing, try_io};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Limits of a [`Prefetch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchConfig {
    /// The maximum number of bytes held and in flight for all streams together. Below some hundred KiB nothing is
    /// fetched ahead.
    pub budget_bytes: u64,
    /// The maximum window of a stream, in bytes.
    pub window_bytes_max: u64,
    /// The maximum number of bytes in flight until the link has been measured. The default suits a fast local network,
    /// and is little enough for a slow one.
    pub window_bytes_first: u64,
    /// Whether a stream is fetched ahead no further than it has advanced, and not while it leaves gaps, so that it
    /// never wastes more bytes than were read: for slow links.
    pub earned: bool,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self { budget_bytes: 64 * MIB, window_bytes_max: 32 * MIB, window_bytes_first: MIB, earned: false }
    }
}

/// A device that reads ahead; see the [module](self).
pub struct Prefetch {
    shared: Arc<PrefetchShared>,
}

impl Prefetch {
    /// Reads ahead of the readers of `inner`. Fetches run on the tokio runtime this is called in; panics outside one.
    pub fn new(inner: DynDevice, config: PrefetchConfig) -> Arc<Self> {
        let size = inner.geometry().size;
        Arc::new(Self { shared: Arc::new(PrefetchShared::new(inner, PrefetchEngine::new(config, size))) })
    }

    /// Drops prefetched data in `range`, because the content of the device below has changed there.
    pub fn forget(&self, range: ByteRange) {
        // Like a write that has ended.
        drop(WriteGuard::begin(&self.shared, range).around(Io::ok(())));
    }

    /// Returns the counters.
    pub fn stats(&self) -> PrefetchStats {
        self.shared.stats()
    }
}

impl Drop for Prefetch {
    /// Cancels the fetches in flight, so that the device below can be closed.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Layer for Prefetch {
    type Below = DynDevice;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Handled;

    fn below(&self) -> &DynDevice {
        &self.shared.inner
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        let shared = &self.shared;
        if range.is_empty() || shared.is_instant() {
            return shared.pass(range);
        }
        try_io!(self.check(range));
        let (plan, tasks) = shared.with_engine(|engine, now, fetches| engine.read(range, now, fetches));
        match plan {
            PrefetchPlan::Pass => shared.pass(range),
            PrefetchPlan::Hit(data) => {
                spawn_all(tasks);
                Io::ok(data)
            }
            PrefetchPlan::Gather(parts, sent) => Io::later(gather(DemandGuard::new(shared, sent), parts, tasks)),
        }
    }

    fn on_write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let change = WriteGuard::begin(&self.shared, ByteRange::new(offset, data.len()));
        change.around(self.shared.inner.write(offset, data, fua))
    }

    fn on_zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        WriteGuard::begin(&self.shared, range).around(self.shared.inner.zero(range, how))
    }

    fn on_trim(&self, range: ByteRange) -> Io<'_, ()> {
        WriteGuard::begin(&self.shared, range).around(self.shared.inner.trim(range))
    }

    fn on_cache(&self, range: ByteRange) -> Io<'_, ()> {
        try_io!(self.check(range));
        if !self.shared.is_instant() {
            let ((), tasks) = self.shared.with_engine(|engine, now, fetches| engine.hint(range, now, fetches));
            spawn_all(tasks);
        }
        Io::ok(())
    }

    /// Lent bytes are the device's current content. A device that can lend them needs no prefetch.
    fn on_lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        self.below().lend(range, show)
    }

    fn on_answers_at_once(&self) -> bool {
        self.below().answers_at_once()
    }

    fn on_take_prefetched(&self, range: ByteRange) -> Vec<(u64, Data)> {
        if range.is_empty() || self.shared.is_instant() {
            return Vec::new();
        }
        let (prefetched, tasks) =
            self.shared.with_engine(|engine, now, fetches| engine.take_prefetched(range, now, fetches));
        spawn_all(tasks);
        prefetched
    }
}
