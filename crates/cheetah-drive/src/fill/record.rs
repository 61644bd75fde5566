//! The persistent record of a fill: its coverage map, and the digests of what the source sent.

use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::copy_on_read::Ledger;
use cheetah_device::{ByteRange, Coverage, Data, Error as DeviceError, Io};
use cheetah_error::Result;
use parking_lot::Mutex;

use super::grains::{self, Grains};
use crate::file::coverage;
use crate::file::{DriveFile, MapRef};

/// The files beside the drive file. Digests are written first, then the map that records their ranges as read.
pub(super) struct FillRecord {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    map: PathBuf,
    grains: Grains,
    /// The content of the map.
    recorded: Mutex<Coverage>,
}

impl FillRecord {
    /// Opens the record of a drive; `recorded` is the content of its map.
    pub(super) fn open(file: &DriveFile, recorded: Coverage) -> Result<Self> {
        let grains = Grains::open(&grains::path(file), recorded.size())?;
        let (id, map, recorded) = (file.id.clone(), coverage::path(file), Mutex::new(recorded));
        Ok(Self { inner: Arc::new(Inner { id, map, grains, recorded }) })
    }

    /// The coverage recorded last.
    pub(super) fn recorded(&self) -> Coverage {
        self.inner.recorded.lock().clone()
    }

    /// The digests of what the source sent.
    pub(super) fn grains(&self) -> &Grains {
        &self.inner.grains
    }

    /// Writes the map. Blocks.
    pub(super) fn save(&self, coverage: &Coverage) -> Result<MapRef> {
        self.inner.save(coverage)
    }
}

impl Inner {
    fn save(&self, coverage: &Coverage) -> Result<MapRef> {
        self.grains.sync()?;
        let saved = coverage::save(&self.map, &self.id, coverage)?;
        self.recorded.lock().clone_from(coverage);
        Ok(saved)
    }
}

impl Ledger for FillRecord {
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
