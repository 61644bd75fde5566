//! Reading what the system has in memory, without waiting for the disk: these systems do not tell what they have.

use std::fs::File;
use std::io::Result as IoResult;

use cheetah_device::ByteRange;

/// How a file can be read from memory: not at all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageCache;

impl PageCache {
    pub(crate) fn of(_file: &File) -> Self {
        Self
    }

    pub(crate) fn read(self, _file: &File, _range: ByteRange) -> Option<Vec<u8>> {
        None
    }
}

/// As [`PageCache::read`]: never.
pub(crate) fn read_cached(_file: &File, _offset: u64, _into: &mut [u8]) -> IoResult<bool> {
    Ok(false)
}
