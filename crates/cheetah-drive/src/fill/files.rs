//! The files that a fill keeps beside the drive file.

use std::io::ErrorKind;

use cheetah_error::{Error, Result};

use super::grains;
use crate::file::DriveFile;
use crate::file::coverage;

/// Removes the files of a fill that the drive file does not refer to.
pub(crate) fn remove_files(file: &DriveFile) -> Result<()> {
    let map = file.map.is_none().then(|| coverage::path(file));
    for path in map.into_iter().chain([grains::path(file)]) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io(format_args!("removing {}", path.display()), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes all files of a fill, when the drive is destroyed.
pub(crate) fn remove_all(file: &DriveFile) -> Result<()> {
    remove_files(&DriveFile { map: None, ..file.clone() })
}
