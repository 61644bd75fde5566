//! Reading the files of a virtual disk, and checking that they hold what their tables refer to.

use cheetah_device::{ByteRange, Device as _};

use crate::note::ImageNote;
use crate::raw::RawFile;
use cheetah_error::{Error, Result};

/// Returns the size of a file.
pub(super) fn size(file: &RawFile) -> u64 {
    file.geometry().size
}

/// Reads up to `len` bytes from `offset`; fewer at the end of the file.
pub(super) fn read(file: &RawFile, offset: u64, len: u64) -> Result<Vec<u8>> {
    let range = ByteRange::new(offset, len).intersection(ByteRange::new(0, size(file))).unwrap_or_default();
    let data = file.read_now(range).map_err(Error::device(format!("reading {}", file.path())))?;
    Ok(data.into_bytes().into())
}

/// Returns the refusal of a file that ends before the bytes that `what` names, at `offset`.
pub(super) fn cut(file: &RawFile, what: &str, offset: u64) -> Error {
    Error::evidence(format!(
        "{}: the file is cut short or damaged: it has {} bytes, and {what} is at offset {offset}; copy it again, completely",
        file.path(),
        size(file)
    ))
}

/// Reads a table, all of which must be in the file, in pieces of at most 1 MiB.
pub(super) fn table(
    file: &RawFile,
    what: &str,
    range: ByteRange,
    mut piece: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    if !range.fits(size(file)) {
        return Err(cut(file, what, range.offset));
    }
    range.split_at_multiples(1 << 20).try_for_each(|range| piece(&read(file, range.offset, range.len)?))
}

/// Checks that places of a disk's content are within a file. qemu reads zeros beyond the end of a file, so a file that was cut
/// short would read as a disk of zeros.
pub(super) struct Places<'a> {
    file: &'a RawFile,
    /// The one place that is partly beyond the end: the file may end within its last unit.
    partly: Option<u64>,
}

impl<'a> Places<'a> {
    /// Returns a checker of places in `file`.
    pub const fn of(file: &'a RawFile) -> Self {
        Self { file, partly: None }
    }

    /// Checks one place.
    pub fn check(&mut self, start: u64, len: u64) -> Result<()> {
        let size = size(self.file);
        if start.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        if start >= size || self.partly.is_some_and(|other| other != start) {
            return Err(cut(self.file, "content of the disk", start));
        }
        self.partly = Some(start);
        Ok(())
    }

    /// Returns a note on the place that is partly beyond the end, if there is one.
    pub fn note(&self) -> Option<ImageNote> {
        let at = self.partly?;
        Some(ImageNote::PieceCut { path: self.file.path().to_string(), at })
    }
}
