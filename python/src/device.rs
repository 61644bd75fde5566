//! An open source, read at offsets.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use cheetah_device::{ByteRange, Device as _, DynDevice};
use cheetah_source::OpenedSource;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::open_options::OpenOptions;
use crate::search::{Hits, Wanted};
use crate::{failure, runtime};

/// The largest single request. A larger read is split, so that it never needs twice its memory.
const PIECE_BYTES: usize = 16 << 20;

/// An open source.
#[pyclass(frozen, module = "cheetah._native")]
pub struct Device {
    /// `None` once closed.
    opened: RwLock<Option<OpenedSource>>,
    /// The name of the source.
    #[pyo3(get)]
    name: String,
    /// The size in bytes.
    #[pyo3(get)]
    size: u64,
    /// The size with the logical volumes behind the end.
    #[pyo3(get)]
    end: u64,
    /// The size of a sector in bytes, if known.
    #[pyo3(get)]
    sector_size: Option<u32>,
    /// Sentences about parts that are lost.
    #[pyo3(get)]
    lost: Vec<String>,
    /// What the keys did, if any were given: see `cheetah.Device.unlocked`.
    #[pyo3(get)]
    unlocked: Option<String>,
    /// What the keys did not do, a sentence each.
    #[pyo3(get)]
    locked: Vec<String>,
    /// The logical volumes, as JSON: see `cheetah.Device.logical`.
    #[pyo3(get)]
    logical: String,
    /// How long a look for doubts may take.
    patience: Duration,
}

#[pymethods]
impl Device {
    /// Opens a source.
    #[new]
    fn new(py: Python<'_>, source: &str, options: &OpenOptions) -> PyResult<Self> {
        let access = options.access(py)?;
        let opened = runtime::wait(py, OpenedSource::open(source, &access))?;
        let opened = opened.map_err(|error| failure::opening(source, &error))?;
        let (name, size, lost) = (opened.name.clone(), opened.size(), opened.lost.clone());
        let (sector_size, patience) = (opened.identity.sector_size, options.timeout);
        let ((unlocked, locked), logical) = (unlocked(&opened)?, logical(&opened)?);
        let end = whole(&opened)?.geometry().size;
        let opened = RwLock::new(Some(opened));
        Ok(Self { opened, name, size, end, sector_size, lost, unlocked, locked, logical, patience })
    }

    /// Returns `length` bytes from `offset`, fewer only at the end. Behind it are the logical volumes in several pieces.
    fn pread<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        let device = self.device()?;
        let length = usize::try_from(length.min(self.end.saturating_sub(offset)))?;
        PyBytes::new_with(py, length, |out| {
            let mut at = offset;
            for piece in out.chunks_mut(PIECE_BYTES) {
                let range = ByteRange::new(at, piece.len() as u64);
                at = range.end();
                let read = async { device.read(range).await.map(|data| data.copy_to(piece)) };
                runtime::wait(py, read)?.map_err(|error| failure::reading(&error))?;
            }
            Ok(())
        })
    }

    /// Fills `buffer` from `offset`. The range must lie within the source.
    fn pread_into(&self, py: Python<'_>, offset: u64, buffer: PyBuffer<u8>) -> PyResult<()> {
        let device = self.device()?;
        let range = ByteRange::new(offset, buffer.len_bytes() as u64);
        let data = runtime::wait(py, device.read(range))?.map_err(|error| failure::reading(&error))?;
        buffer.copy_from_slice(py, &data.into_bytes())
    }

    /// How its connections are protected: see `cheetah.Device.connections`.
    fn connections(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.as_ref().ok_or_else(|| PyValueError::new_err("connections of a closed device"))?;
        runtime::wait(py, opened.connections())?.map_err(|error| failure::opening(&self.name, &error))
    }

    /// Looks for doubts about it: see `cheetah.Device.doubts`.
    fn doubts(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.as_ref().ok_or_else(|| PyValueError::new_err("doubts about a closed device"))?;
        runtime::wait(py, opened.all_doubts(self.patience))
    }

    /// Returns the start, the length and the hosts of each part of `part_bytes`: see `cheetah.Device.parts`.
    fn parts(&self, py: Python<'_>, part_bytes: u64) -> PyResult<Vec<(u64, u64, Vec<String>)>> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.as_ref().ok_or_else(|| PyValueError::new_err("parts of a closed device"))?;
        let parts = runtime::wait(py, opened.parts(part_bytes))?.map_err(|error| failure::of(&error))?;
        Ok(parts.into_iter().map(|part| (part.range.offset, part.range.len, part.hosts)).collect())
    }

    /// Begins to search it: see `cheetah.Device.search`.
    #[pyo3(signature = (source, wanted, at_nodes, lend_key, workers))]
    fn search(
        &self,
        py: Python<'_>,
        source: &str,
        wanted: Wanted,
        at_nodes: bool,
        lend_key: Vec<String>,
        workers: Option<usize>,
    ) -> PyResult<Hits> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.as_ref().ok_or_else(|| PyValueError::new_err("search of a closed device"))?;
        Hits::begin(py, (source, opened), wanted, (at_nodes, lend_key, workers))
    }

    /// Closes the source. Reads in progress in other threads complete.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let opened = self.opened.write().unwrap_or_else(PoisonError::into_inner).take();
        match opened {
            Some(opened) if runtime::is_here() => {
                runtime::wait(py, opened.close())?.map_err(|error| failure::of(&error))
            }
            forked => {
                runtime::discard(forked);
                Ok(())
            }
        }
    }
}

impl Device {
    fn device(&self) -> PyResult<DynDevice> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.as_ref().ok_or_else(|| PyValueError::new_err("read of a closed device"))?;
        whole(opened)
    }
}

/// The source with opened volumes decrypted, and logical volumes behind its end.
pub fn whole(opened: &OpenedSource) -> PyResult<DynDevice> {
    opened.with_inner_volumes().map_err(|error| failure::of(&error))
}

/// The logical volumes of a source, as JSON.
pub fn logical(opened: &OpenedSource) -> PyResult<String> {
    serde_json::to_string(&opened.stack.outcome())
        .map_err(|error| failure::failed(format!("putting the logical volumes as JSON: {error}")))
}

/// What the keys did to the encrypted volumes of a source, as JSON, and what they did not do; nothing if none were given.
pub fn unlocked(opened: &OpenedSource) -> PyResult<(Option<String>, Vec<String>)> {
    let Some(unlocked) = &opened.stack.unlocked else { return Ok((None, Vec::new())) };
    let outcome = unlocked.outcome();
    let text = serde_json::to_string(&outcome)
        .map_err(|error| failure::failed(format!("putting the opened volumes as JSON: {error}")))?;
    Ok((Some(text), outcome.failures()))
}

impl Drop for Device {
    fn drop(&mut self) {
        runtime::discard(self.opened.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}
