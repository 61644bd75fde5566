//! One file of an image as parsers read it: on threads that may block.

use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Device as _, Error as DeviceError, Result as DeviceResult};

use crate::raw::RawFile;

/// A file of an image. Parsers use only this trait, so the file may be here, behind a link, or in a test's memory.
pub(crate) trait ImageFile: Send + Sync {
    /// Its name in a message.
    fn name(&self) -> &str;

    /// Its size, in bytes.
    fn len(&self) -> u64;

    /// Reads a range. Blocks.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfBounds`] for a range that is not within the file; those of the file.
    fn read(&self, range: ByteRange) -> DeviceResult<Bytes>;
}

/// A file of an image, shared by its readers.
pub(crate) type SharedFile = Arc<dyn ImageFile>;

impl ImageFile for RawFile {
    fn name(&self) -> &str {
        self.path()
    }

    fn len(&self) -> u64 {
        self.geometry().size
    }

    fn read(&self, range: ByteRange) -> DeviceResult<Bytes> {
        self.read_now(range).map(Data::into_bytes)
    }
}

/// A file in memory.
pub(crate) struct InMemory(pub Bytes);

impl ImageFile for InMemory {
    fn name(&self) -> &str {
        "in memory"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, range: ByteRange) -> DeviceResult<Bytes> {
        if !range.fits(self.len()) {
            return Err(DeviceError::OutOfBounds { range, size: self.len() });
        }
        // Within memory, so it fits.
        Ok(self.0.slice(range.offset as usize..range.end() as usize))
    }
}
