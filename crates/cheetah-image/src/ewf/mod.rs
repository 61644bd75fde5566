//! The Expert Witness Compression Format: E01 and Ex01 images.

use std::path::Path;

use cheetah_device::{ByteRange, Data, Device, Geometry, Io};

use crate::error::{Error, Result};

mod info;
pub mod write;

pub use info::{EwfFormat, EwfInfo};

/// An E01, S01 or Ex01 image with all its segments, as a read-only device.
pub struct Ewf {
    info: EwfInfo,
}

impl Ewf {
    /// Opens the image whose first segment is at `path`; the others are found beside it. Blocks: all section
    /// descriptors and chunk tables are read and checked.
    pub fn open(path: &Path) -> Result<Self> {
        Err(Error::failed(format!("{}: reading E01 images is not built yet", path.display())))
    }

    /// What the image says of itself.
    pub fn info(&self) -> &EwfInfo {
        &self.info
    }
}

impl Device for Ewf {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.info.size, writable: false, block_preferred: self.info.chunk_size }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let _ = range;
        Io::fail(cheetah_device::Error::Unsupported("reading E01 images"))
    }
}
