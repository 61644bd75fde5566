//! The persistent record of a fill: its coverage map, and the digests of the data that the source sent.

use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::copy_on_read::{CopyRecord, GRAIN};
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, Data, Error as DeviceError, Io};
use cheetah_error::Result;
use parking_lot::Mutex;

use super::event::Reporter;
use super::grains::Grains;
use crate::file::coverage;
use crate::file::digests::CHUNK_BYTES;
use crate::file::{DriveFile, MapRef, grains_path};
use crate::recognise::{Opening, Pieces};

/// The drive file, and the files beside it. Digests are written first, then the map that records their ranges as read.
pub(super) struct FillRecord {
    inner: Arc<Inner>,
}

struct Inner {
    map: PathBuf,
    grains: Grains,
    /// The drive file as it was last written.
    file: Mutex<DriveFile>,
    /// `Read` where the source has sent data: to this process, or to an earlier one that has recorded it.
    sent: Mutex<Coverage>,
    /// Vouches for the record: anyone who can change the folder can change map and digests.
    reporter: Reporter,
}

/// The ranges that the source has sent, by the way they can be compared.
pub(super) struct SentRanges {
    /// Whole grains.
    pub grains: Pieces,
    /// The whole chunks among these grains.
    pub chunks: Pieces,
    /// The grains outside these chunks.
    pub rest: Pieces,
    /// Bytes without a digest: they arrived in pieces smaller than a grain.
    pub incomparable_bytes: u64,
}

impl SentRanges {
    /// Bytes in all.
    pub(super) fn bytes(&self) -> u64 {
        self.grains.bytes() + self.incomparable_bytes
    }
}

impl FillRecord {
    /// Opens the record of a drive; `recorded` is the content of its map.
    pub(super) fn open(file: &DriveFile, recorded: Coverage, reporter: Reporter) -> Result<Self> {
        let grains = Grains::open(&grains_path(file), recorded.size())?;
        let (map, file, sent) = (coverage::path(file), Mutex::new(file.clone()), Mutex::new(recorded));
        Ok(Self { inner: Arc::new(Inner { map, grains, file, sent, reporter }) })
    }

    /// Whether something signed vouches for the record; true if nothing is recorded, or nothing is signed in this process.
    /// Blocks.
    pub(super) fn is_vouched(&self) -> Result<bool> {
        let recorded = self.inner.sent.lock().clone();
        match self.inner.reporter.observer() {
            Some(observer) if recorded != Coverage::new(recorded.size()) => {
                observer.has_vouched(&self.inner.digest(&recorded)?)
            }
            _ => Ok(true),
        }
    }

    /// Forgets all that was recorded, so that it is fetched again.
    pub(super) fn distrust(&self) {
        let mut sent = self.inner.sent.lock();
        *sent = Coverage::new(sent.size());
    }

    /// The drive file as it was last written.
    pub(super) fn file(&self) -> DriveFile {
        self.inner.file.lock().clone()
    }

    /// The digests of the data that the source sent.
    pub(super) fn grains(&self) -> &Grains {
        &self.inner.grains
    }

    /// Notes that the source has sent a range, before any reader gets it.
    pub(super) fn note_sent(&self, range: ByteRange) {
        self.inner.sent.lock().set(range, State::Read);
    }

    /// The ranges that the source has sent so far. Blocks.
    pub(super) fn sent(&self) -> Result<SentRanges> {
        let Inner { grains, sent, .. } = &*self.inner;
        // Copied before the digests are read: a range sent meanwhile has no digest yet, and counts as incomparable.
        let sent = sent.lock().clone();
        let (size, bytes) = (sent.size(), sent.bytes(State::Read));
        grains.sync()?;
        let known = grains.known_runs(&Pieces::within(sent.in_state(State::Read), GRAIN, size))?;
        let chunks = Pieces::within(known.iter().copied(), CHUNK_BYTES, size);
        let mut rest = Coverage::new(size);
        known.iter().for_each(|run| rest.set(*run, State::Read));
        chunks.runs().for_each(|run| rest.set(run, State::Unread));
        let rest = Pieces::within(rest.in_state(State::Read), GRAIN, size);
        let grains = Pieces::within(known, GRAIN, size);
        let incomparable_bytes = bytes.saturating_sub(grains.bytes());
        Ok(SentRanges { grains, chunks, rest, incomparable_bytes })
    }

    /// Records durably, in the drive file, the instance that serves the source, and the bytes sent before that may
    /// differ. Blocks.
    pub(super) fn opened(&self, opening: &Opening) -> Result<()> {
        self.change(|file| {
            // A complete drive has no record of its source.
            let Some((fill, image)) = file.fill.as_mut().zip(file.image.as_mut()) else { return };
            if let Some(server) = &mut fill.server {
                server.instance.clone_from(&opening.instance);
            }
            if let Some(bytes) = opening.comparison.differ_bytes_max() {
                image.differ_bytes_max = bytes;
            }
        })
    }

    /// Writes the drive file, if `change` changes it. Blocks.
    pub(super) fn change(&self, change: impl FnOnce(&mut DriveFile)) -> Result<()> {
        self.inner.file.lock().update(change)
    }

    /// Writes the map. Blocks.
    pub(super) fn save(&self, coverage: &Coverage) -> Result<MapRef> {
        self.inner.save(coverage)
    }
}

impl Inner {
    fn save(&self, coverage: &Coverage) -> Result<MapRef> {
        self.grains.sync()?;
        let (id, is_filling) = {
            let file = self.file.lock();
            (file.id.clone(), file.fill.is_some())
        };
        if let Some(observer) = self.reporter.observer().filter(|_| is_filling) {
            observer.vouch(coverage.bytes(State::Read), self.digest(coverage)?)?;
        }
        coverage::save(&self.map, &id, coverage)
    }

    /// The digest of a map, and of the digests of what it calls read.
    fn digest(&self, coverage: &Coverage) -> Result<String> {
        let mut digest = blake3::Hasher::new();
        digest.update(coverage.to_string().as_bytes());
        let grains = Pieces::within(coverage.in_state(State::Read), GRAIN, coverage.size());
        self.grains.each(&grains, |values| {
            digest.update(values);
        })?;
        Ok(digest.finalize().to_hex().to_string())
    }
}

impl CopyRecord for FillRecord {
    fn passed(&self, range: ByteRange, data: &Data) {
        self.inner.grains.note(range, data);
    }

    fn record(&self, coverage: Coverage) -> Io<'_, ()> {
        let inner = self.inner.clone();
        Io::later(async move {
            let saving = tokio::task::spawn_blocking(move || inner.save(&coverage));
            let failed = |why: String| DeviceError::Invalid(why.into());
            match saving.await {
                Ok(saved) => saved.map(drop).map_err(|error| failed(error.to_string())),
                Err(died) => Err(failed(died.to_string())),
            }
        })
    }
}
