//! What the layer and its surveys share.

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::cache::{Cache, Urgency};
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
}

impl Shared {
    pub(super) fn new(cache: Arc<Cache>, metadata_bytes_max: u64) -> Arc<Self> {
        let (foreteller, finds) = (Mutex::default(), Mutex::default());
        Arc::new(Self { cache, metadata_bytes_max, foreteller, finds })
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

    /// What to fetch now that somebody reads `range`.
    pub(super) fn foretell(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut hints = Vec::new();
        let mut foreteller = self.foreteller.lock();
        if foreteller.files() == 0 {
            return hints;
        }
        let starved = !self.cache.holds(range);
        let stats = self.cache.stats();
        let next = stats.hinted[Urgency::Next as usize];
        let account = Account { demanded: stats.demanded_bytes, hinted: next.bytes, used: next.used_bytes };
        foreteller.read(range, starved, account, |hint| {
            let bytes = self.cache.absent(hint).iter().map(|part| part.len).sum();
            if bytes > 0 {
                hints.push(hint);
            }
            bytes
        });
        hints
    }
}
