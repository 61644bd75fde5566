//! Reads ahead of whoever reads in a pattern, so that the way to the device is busy while the reader thinks.
//!
//! The layer watches the reads that pass. Those that follow no pattern go straight to the device, exactly as
//! asked, and leave no trace but a line in a short history. Reads that do are followed by a
//! cursor, one for each stream, and the bytes ahead of it are fetched before they are asked for.
//!
//! # Recognising a stream
//!
//! Three adjacent reads are a stream, going up or down; four reads at equal distances are a strided one. The
//! history is a set, not a sequence, so that streams may be interleaved and reads may arrive in any order (a
//! kernel's readahead and a client with several threads both see to that). Once recognised, a stream owns every
//! read near its place; a read far from all streams disturbs none.
//!
//! # How much
//!
//! A stream's window begins at 128 KiB. It doubles whenever the reader *starves*, that is, wants bytes that are
//! not here yet; that a stream goes on is no reason to widen it, since a slow reader never needs more. The limit
//! is what keeps the link busy, twice its bandwidth-delay product, as measured; and an equal share of the
//! memory budget. No more than that is on its way at any time for all streams together, so a read that must go
//! to the device never finds a long queue before it; and what a read wants itself is always asked for before
//! anything is fetched on its account.
//!
//! Runs are fetched in pieces of a quarter of the window, aligned, 64 KiB to 1 MiB. Of a strided stream only the
//! records are fetched, many at a time, unless the gaps take less time than the requests they save.
//!
//! The thesis this began with doubled its read-ahead from 4 KiB to 128 KiB with each adjacent block, and fell back
//! to 4 KiB at the first that was not: one stream, forward only, lost to any read in between.
//!
//! # What is kept
//!
//! Fetched chunks are held until they have been read, and a little longer; then they are the first to go
//! when memory is wanted. Chunks nobody has read go only when their stream is idle: while it is not, a stream
//! that wants room goes without. A read that finds a part of its bytes here, and a part on its way, asks the
//! device only for the rest.
//!
//! # Right or not at all
//!
//! * A write forgets what it overlaps *when it ends*, fetches on their way included: a fetch that started before
//!   that may bring either content. Nothing is fetched ahead where a write is under way, nor ever again where one
//!   has failed.
//! * A failed fetch is nobody's error. Readers waiting for it ask the device themselves; the stream's window
//!   closes, and opens again some way behind the place.
//! * Writes that reach the device by another way than through this layer are not seen.
//!
//! # The parts
//!
//! `engine` is the whole of it as a state machine that does no I/O and reads no clock; its parts are
//! `cursors` (with `cursor` and `history`), `cache` (with `chunk`), `link_window`, `writes` and `hints`.
//! This file and `shell` are what is thin around it.

mod cache;
pub(crate) mod chunk;
mod cursor;
mod cursors;
mod engine;
mod hints;
mod history;
mod link_window;
mod shell;
#[cfg(test)]
mod simulation;
mod stats;
#[cfg(test)]
mod tests;
mod writes;

use std::sync::Arc;

pub use self::cursor::{Direction, Pattern};
pub use self::stats::{PrefetchStats, StreamStats};

use self::engine::{Engine, Plan};
use self::shell::{Change, Demand, Shared, gather, launch};
use crate::layer::{Layer, Reads, Writes};
use crate::{ByteRange, Data, Device, DynDevice, Io, Result, Zeroing};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Limits of a [`Prefetch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchConfig {
    /// Bytes that may be held and on their way for all streams together. Below some hundred KiB nothing is
    /// fetched ahead.
    pub budget_bytes: u64,
    /// The most one stream may be fetched ahead, in bytes, however long and fast the link is.
    pub window_bytes_max: u64,
    /// How many bytes may be on their way until the link has been measured: what is known of it from elsewhere, or enough for
    /// a fast local network and little enough for a slow one.
    pub window_bytes_first: u64,
    /// Whether a stream is fetched ahead no further than it has come, and not while it leaves gaps, so that what was fetched
    /// for nothing is never more than what was read: for links over which bytes are dear.
    pub earned: bool,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self { budget_bytes: 64 * MIB, window_bytes_max: 32 * MIB, window_bytes_first: MIB, earned: false }
    }
}

/// A device that reads ahead; see the [module](self).
pub struct Prefetch {
    shared: Arc<Shared>,
}

impl Prefetch {
    /// Reads ahead of readers of `inner`. Fetches run on the tokio runtime this is called in; panics outside one.
    pub fn new(inner: DynDevice, config: PrefetchConfig) -> Arc<Self> {
        let size = inner.geometry().size;
        Arc::new(Self { shared: Arc::new(Shared::new(inner, Engine::new(config, size))) })
    }

    /// What was read ahead in `range` is not to be served any more: the device below has something else there by now.
    pub fn forget(&self, range: ByteRange) {
        // As a write that has ended.
        drop(Change::begin(&self.shared, range).around(Io::ok(())));
    }

    /// What it has done so far.
    pub fn stats(&self) -> PrefetchStats {
        self.shared.stats()
    }
}

impl Drop for Prefetch {
    /// Gives up the fetches on their way, so that the device below can be closed.
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
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        let (plan, flights) = shared.with_engine(|engine, now, fetches| engine.read(range, now, fetches));
        match plan {
            Plan::Pass => shared.pass(range),
            Plan::Hit(data) => {
                launch(flights);
                Io::ok(data)
            }
            Plan::Gather(pieces, sent) => Io::later(gather(Demand::new(shared, sent), pieces, flights)),
        }
    }

    fn on_write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let change = Change::begin(&self.shared, ByteRange::new(offset, data.len()));
        change.around(self.shared.inner.write(offset, data, fua))
    }

    fn on_zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        Change::begin(&self.shared, range).around(self.shared.inner.zero(range, how))
    }

    fn on_trim(&self, range: ByteRange) -> Io<'_, ()> {
        Change::begin(&self.shared, range).around(self.shared.inner.trim(range))
    }

    fn on_cache(&self, range: ByteRange) -> Io<'_, ()> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        if !self.shared.is_instant() {
            let ((), flights) = self.shared.with_engine(|engine, now, fetches| engine.hint(range, now, fetches));
            launch(flights);
        }
        Io::ok(())
    }

    /// What is lent is the device's content as it is now, and nothing is fetched ahead of a device that can lend it.
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
        let (prefetched, flights) =
            self.shared.with_engine(|engine, now, fetches| engine.take_prefetched(range, now, fetches));
        launch(flights);
        prefetched
    }
}
