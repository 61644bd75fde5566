//! State shared by the layer and its surveys.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::cache::{Cache, Urgency};
use cheetah_device::link_estimate::LinkModel;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Geometry, Io};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::OpenedVolumes;
use super::Pieces;
use super::file_map::FileMapBuilder;
use super::predictor::{HintUsage, ReadPredictor};
use crate::survey::FileRuns;

/// A new map is built when this many files are known, and whenever their number has doubled.
const FILES_FIRST: usize = 256;

pub(super) struct ForesightShared {
    pub(super) cache: Arc<Cache>,
    pub(super) metadata_bytes_max: u64,
    /// What surveys read: the cache, with opened volumes decrypted.
    pub(super) background: DynDevice,
    predictor: Mutex<ReadPredictor>,
    builder: Mutex<FileMapBuilder>,
    /// Whether all surveys are over.
    surveyed: watch::Sender<bool>,
}

impl ForesightShared {
    pub(super) fn new(cache: Arc<Cache>, metadata_bytes_max: u64, opened: Option<OpenedVolumes>) -> Arc<Self> {
        let (predictor, builder) = (Mutex::default(), Mutex::default());
        let reads: DynDevice = Arc::new(BackgroundReads(Arc::clone(&cache)));
        let background = opened.map_or_else(|| reads.clone(), |opened| (opened.over)(reads.clone()));
        let surveyed = watch::Sender::new(false);
        Arc::new(Self { cache, metadata_bytes_max, background, predictor, builder, surveyed })
    }

    /// Returns the number of known files.
    pub(super) fn files(&self) -> usize {
        self.predictor.lock().files()
    }

    /// Adds files. Occasionally slow.
    pub(super) fn note(&self, number: u32, volume: &Pieces, files: impl IntoIterator<Item = FileRuns>) {
        let mut builder = self.builder.lock();
        builder.note(number, volume, files);
        if builder.count() >= (2 * self.files()).max(FILES_FIRST) {
            // Before taking the lock, which reads wait for: sorting a million files takes a while.
            let file_map = Arc::new(builder.build());
            self.predictor.lock().learn(file_map);
        }
    }

    /// Builds a map of all files found so far.
    pub(super) fn settle(&self) {
        let builder = self.builder.lock();
        if builder.count() > self.files() {
            let file_map = Arc::new(builder.build());
            self.predictor.lock().learn(file_map);
        }
    }

    /// Notes that no more files will be found.
    pub(super) fn surveyed(&self) {
        self.surveyed.send_replace(true);
    }

    /// Returns a receiver of whether all surveys are over.
    pub(super) fn is_surveyed(&self) -> watch::Receiver<bool> {
        self.surveyed.subscribe()
    }

    /// Returns the ranges to fetch for a read of `range`.
    pub(super) fn predict(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut hints = Vec::new();
        let (starved, stats) = (!self.cache.holds(range), self.cache.stats());
        let mut predictor = self.predictor.lock();
        // During a survey, locality is not used: the survey itself fetches the metadata nearby.
        let surveyed = *self.surveyed.borrow();
        if predictor.files() == 0 && !surveyed {
            return hints;
        }
        let next = stats.hinted[Urgency::Next as usize];
        let usage = HintUsage { demanded: stats.demanded_bytes, hinted: next.bytes, used: next.used_bytes };
        let link = LinkModel { bandwidth: stats.bandwidth, round_trip: Duration::from_micros(stats.round_trip_us) };
        let link = if surveyed { link } else { LinkModel::default() };
        let device = ByteRange::new(0, self.cache.geometry().size);
        predictor.read(range, starved, usage, link, |hint| {
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

/// The device, read with the priority of hints.
struct BackgroundReads(Arc<Cache>);

impl Device for BackgroundReads {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(self.0.read_in_background(range, Urgency::Soon))
    }
}
