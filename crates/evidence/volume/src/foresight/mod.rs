//! Fetches the file-system data that tools will read over a slow link before they do.
//!
//! # Surveys
//!
//! When a device is opened, the layer finds the volumes in it, finds the metadata of each ([`survey`](crate::survey)),
//! and fetches it into the [cache](cheetah_device::cache) below, with many requests in flight. Reads of a tool that
//! walks the file system meanwhile pass through, with priority.
//!
//! # Files
//!
//! Surveys also locate the content of files. A read of the start of a file predicts the rest, which is fetched 1 MiB
//! ahead, and further the longer the file is read. If a reader reads files in an order (that of a listing, by number,
//! or by offset; every file or every n-th), the next ones are fetched, as many as are needed to avoid waiting.
//!
//! # Locality
//!
//! If no file is known at a read, the bytes ahead of it and behind it are fetched, provided that readers return near
//! earlier reads and the round trip is long enough to make this worthwhile (`locality`).
//!
//! These are predictions, so they have a budget: never more bytes are wasted than were read, plus 4 MiB. Metadata,
//! which is not predicted, is fetched up to three quarters of the cache.
//!
//! # Only hints
//!
//! The layer answers no read itself: content comes from the device below, regardless of what a file system claims. A
//! file system with wrong metadata costs time, within the limits above. A survey whose reads fail, or that receives
//! nothing for a minute, is given up.
//!
//! # The parts
//!
//! `predictor` (with `file_stream`, `file_map` and `locality`) decides what to fetch after a read: a state machine that
//! does no I/O and reads no clock. `survey_driver` runs the surveys, which are state machines too.

mod file_map;
mod file_stream;
mod locality;
mod pieces;
mod predictor;
#[cfg(test)]
mod round_trip_tests;
mod shell;
mod survey_driver;
#[cfg(test)]
mod survey_driver_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cheetah_device::cache::{Cache, Urgency};
use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device as _, DynDevice, Io};
use tokio::task::JoinHandle;

pub use self::pieces::Pieces;
use self::shell::ForesightShared;
use crate::nearby::ends;
use crate::recognise::START_BYTES;

/// The length of a partition table at the start of a device.
const TABLE_BYTES: u64 = 20 << 10;

/// Makes a device, with the content of opened volumes, of one of the same size and offsets.
type Over = Arc<dyn Fn(DynDevice) -> DynDevice + Send + Sync>;

/// Volumes that are no partitions, such as encrypted ones that were opened, for surveys of the file systems in them.
#[derive(Clone)]
pub struct OpenedVolumes {
    /// Where their content lies, in the offsets of the device.
    pub volumes: Vec<Pieces>,
    /// Shows them decrypted in a device of the same offsets: each sector where it lies encrypted.
    pub over: Over,
}

/// A device that fetches the ranges that tools will read; see the [module](self). Read-only.
pub struct Foresight {
    inner: DynDevice,
    shared: Arc<ForesightShared>,
    surveys: JoinHandle<()>,
}

impl Foresight {
    /// Predicts reads of `inner`, and fetches their data into `cache`, which lies below `inner` and holds up to
    /// `cache_bytes`. Partition tables are counted in sectors of `sector_bytes`, if known. Surveys see `opened` volumes
    /// decrypted, and fetch what lies there. They run on the calling tokio runtime; panics outside one.
    pub fn new(
        inner: DynDevice,
        cache: Arc<Cache>,
        cache_bytes: u64,
        sector_bytes: Option<u32>,
        opened: Option<OpenedVolumes>,
    ) -> Arc<Self> {
        // The first ranges that tools and the surveys read, in one round trip instead of several: partition tables, boot
        // sector, superblock. The entries of a GPT are separate requests, so that the others need not wait for them.
        let size = inner.geometry().size;
        let entries = ByteRange::between(START_BYTES.min(size), TABLE_BYTES.min(size));
        let first = ends(size).into_iter().chain(entries.split_at_multiples(START_BYTES));
        first.for_each(|range| cache.hint(range, Urgency::Next));
        let opened = opened.filter(|opened| !opened.volumes.is_empty());
        let volumes = opened.as_ref().map(|opened| opened.volumes.clone()).unwrap_or_default();
        let shared = ForesightShared::new(cache, cache_bytes / 4 * 3, opened);
        let surveys = tokio::spawn(survey_driver::survey_all(Arc::clone(&shared), sector_bytes, volumes));
        Arc::new(Self { inner, shared, surveys })
    }

    /// Returns the number of files whose reads it can predict.
    pub fn files(&self) -> usize {
        self.shared.files()
    }

    /// Waits until all surveys are over. Until then, other reads that can wait delay what tools read first.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut surveyed = self.shared.is_surveyed();
        async move {
            // An error says that the layer is gone.
            let _ = surveyed.wait_for(|surveyed| *surveyed).await;
        }
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
        let hints = self.shared.predict(range);
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
            // The read has priority.
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
