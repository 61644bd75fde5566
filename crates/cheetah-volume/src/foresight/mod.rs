//! Fetches what tools will read of the file systems on a slow link, before they do.
//!
//! # Surveys
//!
//! When a device is opened, the layer looks for volumes in it, finds out where each keeps its metadata
//! ([`survey`](crate::survey)), and brings all of that into the [cache](cheetah_device::cache) below, in many requests at
//! once. A tool that walks the file system meanwhile reads straight through; what it waits for goes first.
//!
//! # Files
//!
//! Surveys tell, too, where the content of files lies. Whoever reads the start of one will read the rest, which is
//! fetched at once, up to 1 MiB ahead, and further the longer it is read. Whoever reads one file after the other in some
//! order (as a listing shows them, by number, or by place; every one or every so many) gets the next ones fetched ahead,
//! as many as it takes not to wait.
//!
//! # Around
//!
//! Where no file is known, what lies ahead of a read and behind it is fetched too, if readers come back near where they were
//! and the link is long enough for that to pay (`around`).
//!
//! All of this is guessing, so it is on a budget: what was fetched ahead for nothing is never more than what was really
//! read, and 4 MiB. Metadata, which is not guessed, is fetched up to three quarters of what the cache can keep.
//!
//! # Only hints
//!
//! Nothing here answers a read: what is read comes from the device below, whatever a file system says of itself. If it
//! lies, what it makes us fetch is time lost, within the limits above. A survey whose reads fail, or that hears nothing
//! for a minute, is given up.
//!
//! # The parts
//!
//! `foreteller` (with `stream`, `atlas` and `around`) is what decides what to fetch when something is read: a state machine that
//! does no I/O and reads no clock. `scout` drives the surveys, which are state machines too.

mod around;
mod atlas;
mod foreteller;
mod scout;
#[cfg(test)]
mod scout_tests;
mod shell;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cheetah_device::cache::{Cache, Urgency};
use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device as _, DynDevice, Io};
use tokio::task::JoinHandle;

use self::shell::Shared;
use crate::survey::START_BYTES;

/// As far as a partition table goes that begins the device.
const TABLE_BYTES: u64 = 20 << 10;

/// A device that knows what tools will read; see the [module](self). Read-only.
pub struct Foresight {
    inner: DynDevice,
    shared: Arc<Shared>,
    surveys: JoinHandle<()>,
}

impl Foresight {
    /// Foresees reads of `inner`, and brings what they will need into `cache`, which is below it and keeps up to
    /// `cache_bytes`. Surveys run on the tokio runtime this is called in; panics outside one.
    pub fn new(inner: DynDevice, cache: Arc<Cache>, cache_bytes: u64) -> Arc<Self> {
        // What everything begins with, in one round trip instead of several: partition table, boot sector, superblock. And
        // apart, so that those need not wait for it, the entries of a GPT.
        let start = ByteRange::new(0, inner.geometry().size.min(TABLE_BYTES));
        start.split_at_multiples(START_BYTES).for_each(|range| cache.hint(range, Urgency::Next));
        let shared = Shared::new(cache, cache_bytes / 4 * 3);
        let surveys = tokio::spawn(scout::survey_all(Arc::clone(&shared)));
        Arc::new(Self { inner, shared, surveys })
    }

    /// Files whose content it can foresee.
    pub fn files(&self) -> usize {
        self.shared.files()
    }

    /// Whether all surveys are over.
    pub fn is_settled(&self) -> bool {
        self.surveys.is_finished()
    }
}

impl Drop for Foresight {
    fn drop(&mut self) {
        self.surveys.abort();
    }
}

impl Layer for Foresight {
    type Below = DynDevice;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.inner
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        if range.is_empty() || !range.fits(self.inner.geometry().size) {
            return self.inner.read(range);
        }
        let hints = self.shared.foretell(range);
        let io = self.inner.read(range);
        if hints.is_empty() {
            return io;
        }
        let hint = move || hints.into_iter().for_each(|range| self.shared.cache.hint(range, Urgency::Next));
        match io {
            Io::Done(done) => {
                hint();
                Io::Done(done)
            }
            // What is read goes first.
            Io::Later(mut later) => Io::later(async move {
                let early = futures::poll!(&mut later);
                hint();
                match early {
                    std::task::Poll::Ready(done) => done,
                    std::task::Poll::Pending => later.await,
                }
            }),
        }
    }

    fn on_cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.shared.cache.cache(range)
    }
}
