//! What an image says of itself.

use std::fmt;
use std::path::PathBuf;

use cheetah_device::ByteRange;

use crate::hash::Hashes;
use crate::identity::CaseData;

/// Which of the formats that go by the name of Expert Witness an image is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EwfFormat {
    /// EnCase 1 to 7, FTK Imager, linen and most others: `.E01`.
    E01,
    /// The original, as written by SMART: `.s01`. Its tables carry no checksums.
    S01,
    /// The second version, EnCase 7 and later: `.Ex01`.
    Ex01,
}

impl EwfFormat {
    /// As examiners call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::E01 => "E01",
            Self::S01 => "S01",
            Self::Ex01 => "Ex01",
        }
    }
}

impl fmt::Display for EwfFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What an image says of itself, in its maker's words. Nothing here has been compared with the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EwfInfo {
    /// The format of its segments.
    pub format: EwfFormat,
    /// Its segments in order.
    pub segments: Vec<PathBuf>,
    /// Bytes of evidence.
    pub size: u64,
    /// Bytes in a sector of the evidence.
    pub sector_size: u32,
    /// Bytes of evidence in a chunk, the unit that is compressed and has a checksum.
    pub chunk_size: u32,
    /// Sectors that were given up together where one of them could not be read; 0 where nothing is said.
    pub error_granularity: u32,
    /// Identifies the set of segments; zeros where the maker does not use it. In the byte order of the file.
    pub set_id: [u8; 16],
    /// Whether it is of a physical disk, rather than of a volume.
    pub physical: bool,
    /// Model of the disk.
    pub model: Option<String>,
    /// Serial number of the disk.
    pub serial: Option<String>,
    /// Version of the program that made the image.
    pub tool: Option<String>,
    /// The operating system that program ran on.
    pub platform: Option<String>,
    /// When it was made, as it stands in the image: seconds since 1970, or `YYYY M D h m s`.
    pub acquired: Option<String>,
    /// Number, evidence number, examiner, description and notes.
    pub case: CaseData,
    /// Hashes of the whole that the image claims.
    pub hashes: Hashes,
    /// Ranges that could not be read when the image was made, in bytes; in order, apart, within the size. The image
    /// stores zeros there, which are not evidence: reads that touch them fail.
    pub unreadable: Vec<ByteRange>,
}
