//! A raw image, or a block device, as a read-only device.

use std::path::Path;

use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io};

use crate::error::{Error, Result};

/// A raw image file or block device. Opened read-only: nothing ever writes to a source.
pub struct RawFile {
    size: u64,
}

impl RawFile {
    /// Opens the image at `path`; refuses one that is missing, empty, unreadable or not a file or block device.
    pub fn open(path: &Path) -> Result<Self> {
        let _ = path;
        Err(Error::failed("not built yet"))
    }
}

impl Device for RawFile {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let _ = range;
        Io::fail(DeviceError::Unsupported("not built yet"))
    }
}
