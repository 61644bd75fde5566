//! Files: the space they take, holes, and the cache.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::super::NextData;

pub(crate) fn stored_bytes(path: &Path) -> Option<u64> {
    // st_blocks counts blocks of 512 bytes (stat(2)).
    path.metadata().ok().map(|metadata| metadata.blocks().saturating_mul(512))
}

#[cfg(target_os = "freebsd")]
pub(crate) fn next_data(file: &File, at: u64) -> NextData {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => NextData::At(data),
        Err(rustix::io::Errno::NXIO) => NextData::None,
        Err(_) => NextData::Unknown,
    }
}

/// APFS may take what a program has just written for a hole: all of the file is read.
#[cfg(target_os = "macos")]
pub(crate) fn next_data(_file: &File, _at: u64) -> NextData {
    NextData::Unknown
}

#[cfg(target_os = "freebsd")]
pub(crate) fn forget_cached(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// There is no call for it.
#[cfg(target_os = "macos")]
pub(crate) fn forget_cached(_path: &Path) {}
