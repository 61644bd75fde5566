//! An image's metadata.

use std::fmt;
use std::path::PathBuf;

use cheetah_device::ByteRange;

use crate::hash::Hashes;
use crate::identity::CaseData;

cheetah_kit::named! {
    /// The variants of the Expert Witness format.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum EwfFormat {
        /// EnCase 1 to 7, FTK Imager, linen and most others: `.E01`.
        E01 = "E01",
        /// The original, as written by SMART: `.s01`. Its tables carry no checksums.
        S01 = "S01",
        /// The second version, EnCase 7 and later: `.Ex01`.
        Ex01 = "Ex01",
    }
}

impl fmt::Display for EwfFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An image's metadata as written by its maker. None of it is checked against the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EwfInfo {
    /// The format of the segments.
    pub format: EwfFormat,
    /// The segments in order.
    pub segments: Vec<PathBuf>,
    /// The size of the evidence, in bytes.
    pub size: u64,
    /// The size of a sector, in bytes.
    pub sector_size: u32,
    /// The size of a chunk, the unit of compression and checksums, in bytes.
    pub chunk_size: u32,
    /// The error granularity: the number of sectors marked unreadable together; 0 if not recorded.
    pub error_granularity: u32,
    /// The set identifier in file byte order; zeros if unused.
    pub set_id: [u8; 16],
    /// Whether the source was a physical disk rather than a volume.
    pub physical: bool,
    /// The model of the disk.
    pub model: Option<String>,
    /// The serial number of the disk.
    pub serial: Option<String>,
    /// The version of the program that made the image.
    pub tool: Option<String>,
    /// The operating system that program ran on.
    pub platform: Option<String>,
    /// The acquisition time as stored: seconds since 1970, or `YYYY M D h m s`.
    pub acquired: Option<String>,
    /// Number, evidence number, examiner, description and notes.
    pub case: CaseData,
    /// The stored hashes of the whole.
    pub hashes: Hashes,
    /// Ranges that were unreadable when the image was made: sorted, disjoint, within the size. The image stores zeros
    /// there, which are not evidence, so reads of them fail.
    pub unreadable: Vec<ByteRange>,
}
