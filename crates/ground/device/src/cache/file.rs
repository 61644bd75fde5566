//! The cache's file. It has no name, so its space is freed when the process ends, even if it is killed.
//!
//! Bytes are at the same offset as on the device, so there is nothing to allocate and nothing to look up; an evicted
//! range becomes a hole again. The file system must support sparse files.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_kit::crc64_nvme;
use cheetah_kit::file::{FileExt as _, make_sparse, punch_hole};

use super::GRAIN;
use crate::data::Part;
use crate::{ByteRange, Data, Error, Result};

/// A sparse file without a name.
pub(super) struct CacheFile {
    file: File,
}

impl CacheFile {
    /// Makes a file in `dir`, which must exist.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let context = || format!("cannot keep a cache in {}", dir.display());
        let file = tempfile::tempfile_in(dir).map_err(|error| Error::io(context(), &error))?;
        make_sparse(&file).map_err(|error| Error::io(context(), &error))?;
        let store = Self { file };
        store.file.write_all_at(&[1], 0).map_err(|error| Error::io(context(), &error))?;
        store.punch(ByteRange::new(0, GRAIN)).map_err(|error| Error::io(context(), &error))?;
        Ok(store)
    }

    /// Writes data at `offset`, where there is a hole; returns a digest of each grain.
    pub(super) fn write(&self, offset: u64, data: &Data) -> io::Result<Arc<[u64]>> {
        let mut at = offset;
        for part in data.parts() {
            if let Part::Bytes(bytes) = part {
                self.file.write_all_at(bytes, at)?;
            }
            at += part.len();
        }
        Ok(digests(&data.clone().into_bytes()))
    }

    /// Reads `part` of the data written to `whole`; `None` if it differs from the data written, or cannot be read.
    pub(super) fn read(&self, whole: ByteRange, part: ByteRange, wanted: &[u64]) -> Option<Data> {
        // Both begin at multiples of a grain.
        let range = part.aligned_to(GRAIN).intersection(whole)?;
        let mut bytes = vec![0; usize::try_from(range.len).ok()?];
        // A hole at the end is beyond the end of the file, and counts as zeros.
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(bytes.get_mut(filled..)?, range.offset + filled as u64) {
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        let first = usize::try_from((range.offset - whole.offset) / GRAIN).ok()?;
        let found = digests(&bytes);
        let expected = wanted.get(first..first + found.len())?;
        (expected == &*found).then(|| Data::from(Bytes::from(bytes)).slice(part.offset - range.offset, part.len))
    }

    /// Returns the space of a range to the file system.
    pub(super) fn punch(&self, range: ByteRange) -> io::Result<()> {
        punch_hole(&self.file, range.offset, range.len)
    }
}

fn digests(bytes: &[u8]) -> Arc<[u64]> {
    // Not truncated: a constant.
    bytes.chunks(GRAIN as usize).map(crc64_nvme).collect()
}
