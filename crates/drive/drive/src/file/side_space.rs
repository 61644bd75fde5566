//! The space that a drive file and the files beside it take.

use std::path::Path;

use cheetah_device::copy_on_read::GRAIN;
use cheetah_error::{Result, next};
use cheetah_image::space;
use cheetah_seal::{Record, Units};

use super::digests::{CHUNK_BYTES, ChunkDigest};

/// What a new drive file and its custody log take together.
const BEGUN_BYTES: u64 = 16 << 10;
const DIGEST_BYTES: u64 = size_of::<ChunkDigest>() as u64;

/// What is going to be written beside a drive file.
#[derive(Debug, Clone, Copy, Default)]
pub struct SideFiles {
    /// Bytes of the image that is loaded, or that the drive is filled with; 0 if none is.
    pub image_bytes: u64,
    /// Whether the drive is filled while it is used.
    pub is_filled: bool,
    /// The units of a drive that is sealed.
    pub sealed: Option<Units>,
}

impl SideFiles {
    /// Returns the bytes that a command writes to the files: the drive file, its custody log, its digests and its seal record.
    /// The record of an empty drive is short, and grows as the drive is written to.
    pub fn bytes(&self) -> u64 {
        let digests = digests_bytes(self.image_bytes);
        let grains = if self.is_filled { self.image_bytes.div_ceil(GRAIN).saturating_mul(DIGEST_BYTES) } else { 0 };
        // A record is replaced by writing another beside it.
        let sealed = self.sealed.filter(|_| self.image_bytes > 0);
        let record = sealed.map_or(0, |units| Record::stamps_bytes(&units).saturating_mul(2));
        [digests, grains, record].into_iter().fold(BEGUN_BYTES, u64::saturating_add)
    }

    /// Fails if there is less space beside the drive file at `drive`. Changes nothing.
    ///
    /// # Errors
    ///
    /// `Kind::Failed`, with the next step.
    pub fn check_space(&self, drive: &Path) -> Result<()> {
        space::check(&[(drive.to_owned(), self.bytes())], next::Files::MakeSpace)
    }
}

/// Returns the bytes that the digests of an image take.
pub fn digests_bytes(image_bytes: u64) -> u64 {
    image_bytes.div_ceil(CHUNK_BYTES).saturating_mul(DIGEST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_beside_a_drive_counts() {
        let empty = SideFiles::default();
        let loaded = SideFiles { image_bytes: 1 << 40, ..empty };
        let filled = SideFiles { is_filled: true, ..loaded };
        let sealed = SideFiles { sealed: Units::new(4096, 1 << 40), ..filled };
        let bytes: Vec<_> = [empty, loaded, filled, sealed].iter().map(SideFiles::bytes).collect();
        assert!(bytes[1] - bytes[0] == 32 << 20 && bytes[2] - bytes[1] == 512 << 20, "{bytes:?}");
        assert!(bytes[3] - bytes[2] >= 2 * (8 << 28), "{bytes:?}");
    }

    #[test]
    fn too_little_space_is_an_error_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let drive = dir.path().join("case42.drive");
        SideFiles::default().check_space(&drive).unwrap();
        let error = SideFiles { image_bytes: u64::MAX, ..SideFiles::default() }.check_space(&drive).unwrap_err();
        assert!(error.has_next(next::Files::MakeSpace), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
