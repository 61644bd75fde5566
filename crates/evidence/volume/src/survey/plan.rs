//! The requests of a surveyor.

use std::collections::VecDeque;

use cheetah_device::ByteRange;

use super::FileRuns;

/// The largest request, in bytes.
pub const READ_BYTES_MAX: u64 = 1 << 20;

/// The requests of a surveyor, in their order. Ranges are relative to the start of the volume.
#[derive(Debug, Default)]
pub struct SurveyPlan {
    /// Ranges to be read, and given to the surveyor.
    pub reads: VecDeque<ByteRange>,
    /// Ranges to be fetched into the cache only.
    pub fetches: VecDeque<ByteRange>,
    /// Files located.
    pub files: Vec<FileRuns>,
}

impl SurveyPlan {
    /// Requests the bytes of `range`. They arrive in pieces, cut at multiples of [`READ_BYTES_MAX`] from the start of
    /// the volume; an empty range has none.
    pub fn read(&mut self, range: ByteRange) {
        self.reads.extend(range.split_at_multiples(READ_BYTES_MAX).filter(|piece| !piece.is_empty()));
    }

    /// Requests a fetch of a range that tools will read, but that the survey does not need.
    pub fn fetch(&mut self, range: ByteRange) {
        self.fetches.extend(range.split_at_multiples(READ_BYTES_MAX).filter(|piece| !piece.is_empty()));
    }

    /// Adds a file whose content has been located.
    pub fn file(&mut self, file: FileRuns) {
        self.files.push(file);
    }
}
