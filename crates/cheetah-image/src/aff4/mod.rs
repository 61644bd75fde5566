//! Advanced Forensic Format 4.

use std::path::Path;

use cheetah_device::{ByteRange, Data, Device, Geometry, Io};

use crate::error::{Error, Result};
use crate::identity::{Identity, Kind};

/// A disk image in an AFF4 container, as a read-only device.
pub struct Aff4 {
    size: u64,
}

impl Aff4 {
    /// Opens the container at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        Err(Error::failed(format!("{}: reading AFF4 images is not built yet", path.display())))
    }

    /// What the image says of itself.
    pub fn identity(&self, location: &str) -> Identity {
        Identity::new(Kind::Aff4, location, self.size)
    }
}

impl Device for Aff4 {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: 32 << 10 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let _ = range;
        Io::fail(cheetah_device::Error::Unsupported("reading AFF4 images"))
    }
}
