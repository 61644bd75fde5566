//! The digests of an image's chunks, in a file beside the drive file.
//!
//! The file consists of BLAKE3 digests, 32 bytes for each chunk, in order. Its own digest is in the drive file, under
//! the seal. So an untouched drive file suffices to tell which chunks of the image have changed.

use std::io::ErrorKind;
use std::path::Path;

use cheetah_device::{ByteRange, Data, Size};

use super::{DigestsRef, DriveFile, beside, recorded_name};
use cheetah_error::{Error, Result};
use cheetah_image::own_file::OwnFile;

/// Bytes covered by a digest; the last one covers the rest.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// The file of digests. Only its own digest distinguishes it from other files.
pub(crate) const DIGESTS: OwnFile = OwnFile { name: "file of chunk digests", begins: |_| true };

/// The digest of one chunk.
pub type ChunkDigest = [u8; 32];

/// The digest of a chunk's content.
pub fn digest(chunk: &Data) -> ChunkDigest {
    let mut hasher = blake3::Hasher::new();
    for run in chunk.runs() {
        hasher.update(run);
    }
    *hasher.finalize().as_bytes()
}

/// The digest of a chunk of this many bytes that are zeros.
fn zeros_digest(bytes: u64) -> ChunkDigest {
    let zeros = [0; 4096];
    let mut hasher = blake3::Hasher::new();
    for piece in ByteRange::new(0, bytes).split_at_multiples(zeros.len() as u64) {
        hasher.update(zeros.get(..piece.len as usize).unwrap_or(&zeros));
    }
    *hasher.finalize().as_bytes()
}

/// The digests of an image's chunks, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    size: u64,
    chunks: Vec<ChunkDigest>,
}

impl Digests {
    /// Makes digests for an image of `size` bytes, all zeros until [`Digests::set`].
    ///
    /// # Errors
    ///
    /// If there is not enough memory for them.
    pub fn new(size: u64) -> Result<Self> {
        let mut chunks = Vec::new();
        let count = usize::try_from(size.div_ceil(CHUNK_BYTES)).unwrap_or(usize::MAX);
        chunks.try_reserve_exact(count).map_err(|_| {
            Error::failed(format!(
                "the digests of an image of {} do not fit into the memory of this process; use a machine with more",
                Size(size)
            ))
        })?;
        chunks.resize(count, [0; 32]);
        Ok(Self { size, chunks })
    }

    /// The size of the image in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The ranges of chunks whose digests differ from those of `other`, in order, neighbours merged.
    pub fn differing(&self, other: &Self) -> Vec<ByteRange> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for chunk in ByteRange::new(0, self.size.max(other.size)).split_at_multiples(CHUNK_BYTES) {
            if self.get(chunk.offset) != other.get(chunk.offset) {
                chunk.append_to(&mut ranges);
            }
        }
        ranges
    }

    /// The ranges of chunks whose content is zeros, in order, neighbours merged.
    pub(crate) fn zeros(&self) -> Vec<ByteRange> {
        let whole = zeros_digest(CHUNK_BYTES);
        let last = zeros_digest(self.size % CHUNK_BYTES);
        let mut ranges: Vec<ByteRange> = Vec::new();
        for chunk in ByteRange::new(0, self.size).split_at_multiples(CHUNK_BYTES) {
            let zeros = if chunk.len == CHUNK_BYTES { &whole } else { &last };
            if self.get(chunk.offset) == Some(zeros) {
                chunk.append_to(&mut ranges);
            }
        }
        ranges
    }

    /// Records the digest of the chunk that starts at `offset`.
    pub fn set(&mut self, offset: u64, digest: ChunkDigest) {
        if let Some(chunk) = usize::try_from(offset / CHUNK_BYTES).ok().and_then(|index| self.chunks.get_mut(index)) {
            *chunk = digest;
        }
    }

    /// The digest of the chunk that starts at `offset`.
    pub fn get(&self, offset: u64) -> Option<&ChunkDigest> {
        usize::try_from(offset / CHUNK_BYTES).ok().and_then(|index| self.chunks.get(index))
    }

    /// The BLAKE3 of all digests in order, in hexadecimal: it stands for the content of the whole image.
    pub fn root(&self) -> String {
        blake3::hash(self.chunks.as_flattened()).to_hex().to_string()
    }

    /// Writes the file beside the drive file at `drive`; returns the reference to store in the drive file.
    pub fn save(&self, drive: &Path) -> Result<DigestsRef> {
        let path = beside(drive, "digests");
        DIGESTS.replace(&path, self.chunks.as_flattened())?;
        Ok(DigestsRef { file: recorded_name(&path), chunk: CHUNK_BYTES, blake3: self.root() })
    }

    /// Removes the file that `drive` refers to. Only its content shows that it is one: another file, which an altered drive
    /// file may name, is left alone.
    ///
    /// # Errors
    ///
    /// If the file is not the recorded one, or cannot be removed.
    pub(crate) fn remove(drive: &DriveFile) -> Result<()> {
        let recorded = drive.image.as_ref().and_then(|image| Some((image.digests.as_ref()?, image.size)));
        let Some((digests, size)) = recorded else { return Ok(()) };
        let path = drive.recorded(&digests.file);
        if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        Self::load(drive, digests, size)?;
        DIGESTS.remove(&path)
    }

    /// Reads the file that `drive` refers to, for an image of `size` bytes. Refuses another file than the recorded one.
    pub fn load(drive: &DriveFile, recorded: &DigestsRef, size: u64) -> Result<Self> {
        let path = drive.recorded(&recorded.file);
        let path_text = path.display();
        let mut digests = Self::new(size)?;
        let expected = digests.chunks.len() as u64 * 32;
        let Some(bytes) = DIGESTS.read(&path, expected)? else {
            return Err(Error::failed(format!(
                "{path_text} is missing, the digests of the image; put it back beside the drive file"
            )));
        };
        if bytes.len() as u64 != expected || blake3::hash(&bytes).to_hex().as_str() != recorded.blake3 {
            return Err(Error::evidence(format!(
                "{path_text}: not the digests that were made at load; put the original back beside the drive file, \
                 or compare the hashes of the whole with the case notes"
            )));
        }
        digests.chunks.as_flattened_mut().copy_from_slice(&bytes);
        Ok(digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::example;

    #[test]
    fn chunks_of_zeros_are_known_by_their_digests_also_a_short_one_at_the_end() {
        let size = 3 * CHUNK_BYTES + 5000;
        let mut digests = Digests::new(size).unwrap();
        assert_eq!(digests.zeros(), [], "a chunk that was not loaded has no digest of zeros");
        digests.set(0, [7; 32]);
        for chunk in ByteRange::between(CHUNK_BYTES, size).split_at_multiples(CHUNK_BYTES) {
            digests.set(chunk.offset, digest(&Data::from(vec![0; chunk.len as usize])));
        }
        assert_eq!(digests.zeros(), [ByteRange::between(CHUNK_BYTES, size)]);
        digests.set(2 * CHUNK_BYTES, [7; 32]);
        let ends = [ByteRange::new(CHUNK_BYTES, CHUNK_BYTES), ByteRange::new(3 * CHUNK_BYTES, 5000)];
        assert_eq!(digests.zeros(), ends);
    }

    #[test]
    fn only_the_digests_that_the_drive_file_records_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut drive = example();
        drive.path = dir.path().join("case42.drive");
        let image = drive.image.as_mut().unwrap();
        let mut digests = Digests::new(image.size).unwrap();
        digests.set(0, [7; 32]);
        image.digests = Some(digests.save(&drive.path).unwrap());
        let path = drive.digests_path();
        let own = std::fs::read(&path).unwrap();
        for other in [&b"Dear diary"[..], &[0; 32], b""] {
            std::fs::write(&path, other).unwrap();
            Digests::remove(&drive).unwrap_err();
            assert_eq!(std::fs::read(&path).unwrap(), other);
        }
        std::fs::write(&path, own).unwrap();
        Digests::remove(&drive).unwrap();
        assert!(!path.exists());
        Digests::remove(&drive).unwrap();
    }
}
