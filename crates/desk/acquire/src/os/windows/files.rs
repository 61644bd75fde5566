//! Files: the space they take, holes, and the cache.

use std::fs::{File, OpenOptions};
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::Path;

use super::super::NextData;

/// `FILE_FLAG_NO_BUFFERING` (fileapi.h).
const NO_BUFFERING: u32 = 0x2000_0000;

pub(crate) fn stored_bytes(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|metadata| metadata.len())
}

/// Windows lists the ranges of a file that have content, and not from one place on: the rest is read.
pub(crate) fn next_data(_file: &File, _at: u64) -> NextData {
    NextData::Unknown
}

/// Windows drops what it keeps of a file when that is opened for reading past the cache.
pub(crate) fn forget_cached(path: &Path) {
    drop(OpenOptions::new().read(true).custom_flags(NO_BUFFERING).open(path));
}
