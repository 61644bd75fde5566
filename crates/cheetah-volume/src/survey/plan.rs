//! What a surveyor wants done.

use std::collections::VecDeque;

use cheetah_device::ByteRange;

use super::FileRuns;

/// The most that is asked for in one piece, in bytes.
pub const READ_BYTES_MAX: u64 = 1 << 20;

/// What a surveyor wants done, in the order of its wishes. Ranges are relative to the start of the volume.
#[derive(Debug, Default)]
pub struct Plan {
    /// To be read, and given to the surveyor.
    pub reads: VecDeque<ByteRange>,
    /// To be brought near only: nobody here looks into them.
    pub fetches: VecDeque<ByteRange>,
    /// Files whose content has been located.
    pub files: Vec<FileRuns>,
}

impl Plan {
    /// The bytes of `range` are wanted. They arrive in pieces, cut at multiples of [`READ_BYTES_MAX`] from the start of
    /// the volume; empty ranges never do.
    pub fn read(&mut self, range: ByteRange) {
        self.reads.extend(range.split_at_multiples(READ_BYTES_MAX).filter(|piece| !piece.is_empty()));
    }

    /// Tools will read `range`, but its content tells nothing.
    pub fn fetch(&mut self, range: ByteRange) {
        self.fetches.extend(range.split_at_multiples(READ_BYTES_MAX).filter(|piece| !piece.is_empty()));
    }

    /// A file's content has been located.
    pub fn file(&mut self, file: FileRuns) {
        self.files.push(file);
    }
}
