//! Keeps what has crossed a slow link, so that nothing crosses it twice while it is kept.
//!
//! # What is kept
//!
//! Everything that arrives, whoever asked for it, up to a budget: in memory, or in a file without a name in a directory
//! of the user's. What was used longest ago goes first. What is fetched is what is missing, widened to whole grains of
//! 4 KiB and no further: over a slow link every byte beyond what was asked for is time, and who knows better than a rule
//! of thumb what will be read next says so with a hint.
//!
//! # Single flight
//!
//! Who wants what is on its way already waits for it. That request's failure is an error only to who made it: anybody
//! else who waited asks again, for no more than his own bytes. Failures are not kept.
//!
//! # Hints
//!
//! [`Device::cache`] and [`Cache::bring`] ask for a range before it is read. Hints wait in queues, by [`Urgency`], and
//! set out in small pieces while less is on its way than keeps the link busy (`hint_window`). So a read, which never waits in those queues, finds at
//! most one more round trip's worth of bytes before it. A hint that fails is nobody's error.
//!
//! # Right or not at all
//!
//! The layer is for sources, which do not change: there is no way to write through it. What is kept in a file is kept
//! with a CRC-64 of each grain, and what comes back different is fetched again, with a warning. Memory is trusted, as it
//! is everywhere in this process.
//!
//! # The parts
//!
//! `engine` is the whole of it as a state machine that does no I/O and reads no clock; its parts are `shelf` and
//! `wishes` and `hint_window`. This file, `shell`, `keeper` and `store` are what is thin around it.

mod engine;
mod hint_window;
mod keeper;
mod shelf;
mod shell;
mod stats;
mod store;
#[cfg(test)]
mod tests;
mod wishes;

use std::path::PathBuf;
use std::sync::Arc;

use smallvec::SmallVec;

pub use self::stats::{CacheStats, Hinted};

use self::engine::{Engine, Plan};
use self::keeper::Keeper;
use self::shell::{Shared, gather};
use crate::layer::{Layer, Reads, Writes};
use crate::{ByteRange, Data, Device, DynDevice, Io, Result};

/// What is fetched begins and ends at multiples of so many bytes.
const GRAIN: u64 = 4 << 10;
/// The largest request for what is read, in bytes.
const DEMAND_BYTES_MAX: u64 = 1 << 20;
/// The largest request for a hint, in bytes: what is read out of the middle of it should not wait for much else.
const FETCH_BYTES: u64 = 256 << 10;
/// The same while the link begins to carry something: connections bring little each at first, so many share in it.
const FETCH_BYTES_FIRST: u64 = 64 << 10;

/// Where a [`Cache`] keeps what it keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachePlace {
    /// In memory.
    Memory,
    /// In a file without a name in this directory.
    Directory(PathBuf),
}

/// Limits of a [`Cache`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Where.
    pub place: CachePlace,
    /// How much is kept, in bytes. What is on its way, or being written to the file, comes on top.
    pub budget_bytes: u64,
}

/// How soon a range will be read, as far as who asks for it knows. The more urgent goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Very likely next.
    Next,
    /// Other fetches depend on what is in it.
    Soon,
    /// Some time.
    Later,
}

impl Urgency {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All of them, most urgent first.
    pub const ALL: [Self; Self::COUNT] = [Self::Next, Self::Soon, Self::Later];
}

/// A device that keeps what it has read; see the [module](self). Read-only.
pub struct Cache {
    shared: Arc<Shared>,
}

impl Cache {
    /// Keeps what is read from `inner`. Fetches run on the tokio runtime this is called in; panics outside one.
    ///
    /// # Errors
    ///
    /// If no file can be made in the directory, or none that can have holes.
    pub fn new(inner: DynDevice, config: CacheConfig) -> Result<Arc<Self>> {
        let engine = Engine::new(inner.geometry().size, config.budget_bytes);
        let keeper = match &config.place {
            CachePlace::Memory => None,
            CachePlace::Directory(dir) => Some(Keeper::start(dir)?),
        };
        Ok(Arc::new(Self { shared: Shared::new(inner, engine, keeper) }))
    }

    /// Brings a range near. Finishes when it is here or on its way; at once if too much has been asked for already.
    pub async fn bring(&self, range: ByteRange, urgency: Urgency) {
        if self.check(range).is_ok() && !range.is_empty() {
            self.shared.bring(range, urgency).await;
        }
    }

    /// A hint like [`Device::cache`], of an urgency.
    pub fn hint(&self, range: ByteRange, urgency: Urgency) {
        if self.check(range).is_ok() {
            self.shared.hint(range, urgency);
        }
    }

    /// Reads a range that nobody waits for: it queues with the hints, and does not count as use of them.
    pub async fn read_aside(&self, range: ByteRange, urgency: Urgency) -> Result<Data> {
        self.check(range)?;
        self.bring(range, urgency).await;
        self.read_as(range, false).await
    }

    /// Parts of a range that are neither kept nor on their way.
    pub fn absent(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        self.shared.absent(range)
    }

    /// Whether all of a range is kept, so that a read of it waits for nothing but perhaps the file.
    pub fn holds(&self, range: ByteRange) -> bool {
        self.shared.holds(range)
    }

    /// What it has done so far.
    pub fn stats(&self) -> CacheStats {
        self.shared.stats()
    }

    fn read_as(&self, range: ByteRange, counts: bool) -> Io<'_, Data> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        if range.is_empty() {
            return Io::ok(Data::new());
        }
        match self.shared.read(range, counts) {
            Plan::Hit(data) => Io::ok(data),
            Plan::Gather(pieces) => Io::later(gather(&self.shared, pieces)),
        }
    }
}

impl Drop for Cache {
    /// Gives up the fetches on their way, so that the device below can be closed.
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
