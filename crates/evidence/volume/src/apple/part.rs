//! A part of a device, which holds a volume.

use cheetah_device::{ByteRange, Device};

use super::{Flaw, Result};

/// A part of a device, which holds a volume.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub device: &'a dyn Device,
    pub range: ByteRange,
}

impl Part<'_> {
    /// Reads `len` bytes, `at` bytes after its start.
    pub async fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let part = ByteRange::new(at, len);
        if !part.fits(self.range.len) {
            return Err(Flaw::Damaged("it names a place beyond its end"));
        }
        Ok(self.device.read(part.shifted(self.range.offset)).await?.into_bytes().into())
    }
}
