//! A part of a device, which holds a volume.

use cheetah_device::{ByteRange, DynDevice};

use crate::refusal::{Refusal, Result};

/// A part of a device, which holds a volume.
#[derive(Clone)]
pub(crate) struct Piece {
    pub device: DynDevice,
    pub range: ByteRange,
}

impl Piece {
    /// Reads `len` bytes, `at` bytes after its start.
    pub async fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let part = ByteRange::new(at, len);
        if !part.fits(self.range.len) {
            return Err(Refusal::Damaged("it names a place beyond its end"));
        }
        Ok(self.device.read(part.shifted(self.range.offset)).await?.into_bytes().into())
    }

    /// Reads at most `len` bytes: fewer at the end.
    pub async fn read_up_to(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        self.read(at, len.min(self.range.len.saturating_sub(at))).await
    }
}
