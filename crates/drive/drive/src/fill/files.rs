//! The files that a fill keeps beside the drive file.

use cheetah_error::Result;

use super::grains;
use crate::file::{DriveFile, coverage, grains_path};

/// Removes the files of a fill that the drive file does not refer to.
pub(crate) fn remove_files(file: &DriveFile) -> Result<()> {
    if file.map.is_none() {
        coverage::MAP.remove(&coverage::path(file))?;
    }
    grains::GRAINS.remove(&grains_path(file))
}

/// Removes all files of a fill, when the drive is destroyed.
pub(crate) fn remove_all(file: &DriveFile) -> Result<()> {
    remove_files(&DriveFile { map: None, ..file.clone() })
}
