//! A file to keep bytes in that has no name: it goes with the process, however that ends.
//!
//! Bytes lie in it where they lie on the device, so there is nothing to allocate and nothing to look up; what is dropped
//! becomes a hole again. The file's system has to know sparse files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use super::GRAIN;
use crate::data::Part;
use crate::{ByteRange, Data, Error, Result};

/// The file.
pub(super) struct Store {
    file: File,
}

impl Store {
    /// A file in `dir`, which must be there.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let context = || format!("cannot keep a cache in {}", dir.display());
        let file = tempfile::tempfile_in(dir).map_err(|error| Error::io(context(), &error))?;
        let store = Self { file };
        store.file.write_all_at(&[1], 0).map_err(|error| Error::io(context(), &error))?;
        store.punch(ByteRange::new(0, GRAIN)).map_err(|error| Error::io(context(), &error))?;
        Ok(store)
    }

    /// Writes what lies at `offset`, where there is a hole now; a digest of each grain.
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

    /// Reads `part` of what was written to `whole`; `None` if it is not what was written, whatever the reason.
    pub(super) fn read(&self, whole: ByteRange, part: ByteRange, wanted: &[u64]) -> Option<Data> {
        // Both begin at multiples of a grain, but for the end.
        let range = part.aligned_to(GRAIN).intersection(whole)?;
        let mut bytes = vec![0; usize::try_from(range.len).ok()?];
        // A hole at the end is not part of the file; it reads as zeros all the same.
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

    /// Gives the space back.
    pub(super) fn punch(&self, range: ByteRange) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, range.offset, range.len)?)
    }
}

fn digests(bytes: &[u8]) -> Arc<[u64]> {
    // Not truncated: a constant.
    bytes.chunks(GRAIN as usize).map(crc_fast::crc64_nvme).collect()
}
