//! Files: the space they take, holes, and the page cache.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use super::super::NextData;

pub(crate) fn stored_bytes(path: &Path) -> Option<u64> {
    // st_blocks counts blocks of 512 bytes on every file system (stat(2)).
    path.metadata().ok().map(|metadata| metadata.blocks().saturating_mul(512))
}

pub(crate) fn next_data(file: &File, at: u64) -> NextData {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => NextData::At(data),
        Err(Errno::NXIO) => NextData::None,
        Err(_) => NextData::Unknown,
    }
}

pub(crate) fn forget_cached(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}
