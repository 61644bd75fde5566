//! Reading the files of a virtual disk.

use cheetah_device::{ByteRange, Device as _};

use crate::raw::RawFile;
use cheetah_error::{Error, Result};

/// Returns the size of a file.
pub(super) fn size(file: &RawFile) -> u64 {
    file.geometry().size
}

/// Reads up to `len` bytes from `offset`; fewer at the end of the file.
pub(super) fn read(file: &RawFile, offset: u64, len: u64) -> Result<Vec<u8>> {
    let range = ByteRange::new(offset, len).intersection(ByteRange::new(0, size(file))).unwrap_or_default();
    let data = file.read_now(range).map_err(Error::device(format!("reading {}", file.path())))?;
    Ok(data.into_bytes().into())
}
