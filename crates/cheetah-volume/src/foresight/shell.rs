//! What the layer and its surveys share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_device::cache::{Cache, Urgency};
use cheetah_device::link_estimate::LinkModel;
use cheetah_device::{ByteRange, Device};
use parking_lot::Mutex;

use super::atlas::Finds;
use super::foreteller::{Account, Foreteller};
use crate::survey::FileRuns;

/// A new atlas is made when there are so many files, and whenever there are twice as many again.
const FILES_FIRST: usize = 256;

pub(super) struct Shared {
    pub(super) cache: Arc<Cache>,
    pub(super) metadata_bytes_max: u64,
    foreteller: Mutex<Foreteller>,
    finds: Mutex<Finds>,
    /// Whether all surveys are over.
    surveyed: AtomicBool,
}

impl Shared {
    pub(super) fn new(cache: Arc<Cache>, metadata_bytes_max: u64) -> Arc<Self> {
        let (foreteller, finds) = (Mutex::default(), Mutex::default());
        Arc::new(Self { cache, metadata_bytes_max, foreteller, finds, surveyed: AtomicBool::new(false) })
    }

    /// Files known.
    pub(super) fn files(&self) -> usize {
        self.foreteller.lock().files()
    }

    /// Takes note of files. Slow now and then.
    pub(super) fn note(&self, number: u32, volume: ByteRange, files: impl IntoIterator<Item = FileRuns>) {
        let mut finds = self.finds.lock();
        finds.note(number, volume, files);
        if finds.count() >= (2 * self.files()).max(FILES_FIRST) {
            // Before the lock: reads wait for it, and a million files take a while to sort.
            let atlas = Arc::new(finds.atlas());
            self.foreteller.lock().learn(atlas);
        }
    }

    /// What has been found is all there is for now.
    pub(super) fn settle(&self) {
        let finds = self.finds.lock();
        if finds.count() > self.files() {
            let atlas = Arc::new(finds.atlas());
            self.foreteller.lock().learn(atlas);
        }
    }

    /// No more will be found.
    pub(super) fn surveyed(&self) {
        self.surveyed.store(true, Ordering::Relaxed);
    }

    /// What to fetch now that somebody reads `range`.
    pub(super) fn foretell(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut hints = Vec::new();
        let (starved, stats) = (!self.cache.holds(range), self.cache.stats());
        let mut foreteller = self.foreteller.lock();
        // Until surveys are over they know better what is around metadata, and it is on its way.
        let surveyed = self.surveyed.load(Ordering::Relaxed);
        if foreteller.files() == 0 && !surveyed {
            return hints;
        }
        let next = stats.hinted[Urgency::Next as usize];
        let account = Account { demanded: stats.demanded_bytes, hinted: next.bytes, used: next.used_bytes };
        let link = LinkModel { bandwidth: stats.bandwidth, round_trip: Duration::from_micros(stats.round_trip_us) };
        let link = if surveyed { link } else { LinkModel::default() };
        let device = ByteRange::new(0, self.cache.geometry().size);
        foreteller.read(range, starved, account, link, |hint| {
            let Some(hint) = hint.intersection(device) else { return 0 };
            let bytes = self.cache.absent(hint).iter().map(|part| part.len).sum();
            if bytes > 0 {
                hints.push(hint);
            }
            bytes
        });
        hints
    }
}
