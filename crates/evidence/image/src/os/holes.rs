//! Holes in files, where the system tells of them (`SEEK_DATA` of lseek(2)).

use std::fs::File;
use std::io::Result as IoResult;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The offset of the first byte outside a hole, from `offset` on; `None` if a hole reaches to the end. Fails if the file system
/// does not support this, or the file is a disk.
pub(crate) fn next_data(file: &File, offset: u64) -> IoResult<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The offset of the first byte of a hole, from `offset` on; that of the end if there is none. Fails as [`next_data`].
pub(crate) fn next_hole(file: &File, offset: u64) -> IoResult<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::Hole(offset))?)
}
