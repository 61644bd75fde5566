//! Copying a drive out.

use std::path::Path;

use cheetah_device::DynDevice;
use serde::Serialize;

use crate::copy::Progress;
use crate::error::{Error, Result};
use crate::hash::{HashChoice, Hashes};

/// How to save.
#[derive(Debug, Clone, Default)]
pub struct SaveOptions {
    /// Replace the file if it exists.
    pub force: bool,
    /// Hashes to compute of what was saved.
    pub hashes: HashChoice,
    /// Save only this many bytes from the start (an image's size); all if `None`.
    pub size: Option<u64>,
}

/// What was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// Bytes.
    pub size: u64,
    /// Hashes of them.
    pub hashes: Hashes,
}

/// Copies `device` to a sparse file at `path`, which has its name only once it is whole and on stable storage.
pub async fn save(
    device: DynDevice,
    path: &Path,
    options: SaveOptions,
    progress: impl FnMut(Progress) + Send,
) -> Result<Saved> {
    let _ = (device, path, options, progress);
    Err(Error::failed("not built yet"))
}

/// Copies `from` to the start of `to`, and flushes it.
pub async fn copy(
    from: DynDevice,
    to: DynDevice,
    hashes: HashChoice,
    progress: impl FnMut(Progress) + Send,
) -> Result<Saved> {
    let _ = (from, to, hashes, progress);
    Err(Error::failed("not built yet"))
}
