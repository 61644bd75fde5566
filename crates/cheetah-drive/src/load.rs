//! Copying an image into a drive: one pass, hashed on the way.

use std::time::Duration;

use cheetah_device::DynDevice;

use crate::copy::Progress;
use crate::error::{Error, Result};
use crate::file::{DriveFile, Image};
use crate::hash::HashChoice;

/// How to load an image.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the image comes from, as the user wrote it: for the record.
    pub source_name: String,
    /// Hashes of the whole to compute.
    pub hashes: HashChoice,
    /// Take the write lease from whoever holds it.
    pub force_lease: bool,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// Copies `source` into the drive from its start, and records its digests in and beside the drive file.
/// Returns when every node has it. While it runs, and if it fails, the drive file says `loading`.
pub async fn load(
    file: &mut DriveFile,
    source: DynDevice,
    options: LoadOptions,
    progress: impl FnMut(Progress) + Send,
) -> Result<Image> {
    let _ = (file, source, options, progress);
    Err(Error::failed("not built yet"))
}
