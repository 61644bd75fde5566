//! Options of an E01 image.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::identity::CaseData;
use cheetah_error::{Error, Result};

/// The maximum length of a segment: offsets within a table have 31 bits.
const SEGMENT_SIZE_MAX: u64 = (1 << 31) - (1 << 20);
/// The maximum length of a chunk that every reader accepts.
pub(super) const CHUNK_BYTES_MAX: u64 = 32768 * 512;
/// An upper bound of the bytes of a segment besides chunks and their table entries.
const SEGMENT_OVERHEAD_MAX: u64 = 256 << 10;
/// Characters EnCase shows of a text.
const TEXT_CHARS_MAX: usize = 2999;
/// The minimum length of a segment: the overhead of smaller ones is too large.
const SEGMENT_SIZE_MIN: u64 = 1 << 20;

/// How hard to compress: one of the names `none`, `fast` and `best`, or a level of libdeflate, 0 (`none`) to 12
/// (`best`). All are deflate, so every reader reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Compression(u8);

impl Compression {
    /// Chunks are stored, except chunks of zeros.
    pub const NONE: Self = Self(0);
    /// As fast as disks are read. On Linux with x86-64, half the time of level 1, for images 3 % larger; elsewhere it is level 1.
    pub const FAST: Self = Self(FAST);
    /// Small, for archives; many times slower than [`FAST`](Self::FAST).
    pub const BEST: Self = Self(12);

    /// A level from 0 to 12.
    pub fn new(level: u8) -> Result<Self> {
        match level {
            0..=12 => Ok(Self(level)),
            _ => Err(Error::misuse(format!("compression level {level} does not exist; choose from 0 to 12"))),
        }
    }

    /// 0 to 12; `fast` counts as 1.
    pub const fn level(self) -> u8 {
        if self.0 == FAST { 1 } else { self.0 }
    }
}

/// Not a level of libdeflate, which may be another library: [`FastZlib`](crate::os::FastZlib).
const FAST: u8 = u8::MAX;

impl Default for Compression {
    fn default() -> Self {
        Self::FAST
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self::FAST => f.write_str("fast"),
            Self::BEST => f.write_str("best"),
            Self(level) => write!(f, "{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::NONE),
            "fast" => Ok(Self::FAST),
            "best" => Ok(Self::BEST),
            _ => text.parse().ok().and_then(|level| Self::new(level).ok()).ok_or_else(|| {
                Error::misuse(format!("'{text}' is not a compression; write none, fast, best or a level from 0 to 12"))
            }),
        }
    }
}

impl TryFrom<String> for Compression {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Compression> for String {
    fn from(compression: Compression) -> Self {
        compression.to_string()
    }
}

/// The kind of medium (the volume section's media type).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Media {
    /// A removable disk: a USB stick, a memory card.
    Removable,
    /// Any other disk.
    #[default]
    Fixed,
    /// A CD, DVD or the like.
    Optical,
    /// The memory of a running machine.
    Memory,
}

/// The options of an E01, and the case data that it stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct E01Options {
    /// How hard to compress.
    pub compression: Compression,
    /// Sectors a chunk, the unit of compression and of reading back: a power of two from 16 to 32768.
    pub chunk_sectors: u32,
    /// Bytes a sector: a power of two from 512 to 4096.
    pub sector_size: u32,
    /// The maximum length of a segment file; `None` for the format's limit, just under 2 GiB.
    pub segment_size: Option<u64>,
    /// Case data from the examiner.
    pub case: CaseData,
    /// When the evidence was acquired, in seconds since 1970 (UTC).
    pub acquired_s: u64,
    /// The acquiring machine's clock at that time, in seconds since 1970 (UTC).
    pub system_s: u64,
    /// The tool and its version.
    pub software: String,
    /// The operating system it ran on.
    pub platform: String,
    /// The device's model.
    pub model: Option<String>,
    /// The device's serial number.
    pub serial: Option<String>,
    /// The kind of medium.
    pub media: Media,
    /// Whether it is a whole device rather than a partition.
    pub physical: bool,
    /// Whether a write blocker, of any make, was used.
    pub write_blocked: bool,
    /// The identifier of this set of segments; random if `None`.
    pub guid: Option<[u8; 16]>,
    /// Overwrite a set of that name.
    pub force: bool,
}

impl Default for E01Options {
    fn default() -> Self {
        let now_s = cheetah_kit::clock::now_s();
        Self {
            compression: Compression::default(),
            chunk_sectors: 64,
            sector_size: 512,
            segment_size: Some(1536 << 20),
            case: CaseData::default(),
            acquired_s: now_s,
            system_s: now_s,
            software: concat!("Cheetah ", env!("CARGO_PKG_VERSION")).to_owned(),
            platform: "Linux".to_owned(),
            model: None,
            serial: None,
            media: Media::default(),
            physical: true,
            write_blocked: false,
            guid: None,
            force: false,
        }
    }
}

impl E01Options {
    /// Fails if the format cannot represent the options. The error names the option to change.
    pub fn check(&self) -> Result<()> {
        let Self { chunk_sectors, sector_size, .. } = *self;
        if !sector_size.is_power_of_two() || !(512..=4096).contains(&sector_size) {
            return Err(Error::misuse(format!("E01: sectors cannot have {sector_size} bytes; 512 to 4096 is usual")));
        }
        if !chunk_sectors.is_power_of_two() || !(16..=32768).contains(&chunk_sectors) {
            let why = "choose a power of two from 16 to 32768";
            return Err(Error::misuse(format!("E01: chunks cannot have {chunk_sectors} sectors; {why}")));
        }
        let chunk_bytes = u64::from(chunk_sectors) * u64::from(sector_size);
        if chunk_bytes > CHUNK_BYTES_MAX {
            let why = format!("choose fewer sectors, {} at most", CHUNK_BYTES_MAX / u64::from(sector_size));
            return Err(Error::misuse(format!("E01: chunks cannot have {chunk_bytes} bytes; {why}")));
        }
        let least = SEGMENT_SIZE_MIN.max(chunk_bytes + SEGMENT_OVERHEAD_MAX);
        if !(least..=SEGMENT_SIZE_MAX).contains(&self.segment_bytes()) {
            let bytes = self.segment_bytes();
            let why = format!("choose from {least} to {SEGMENT_SIZE_MAX}");
            return Err(Error::misuse(format!("E01: segments cannot have {bytes} bytes with such chunks; {why}")));
        }
        let CaseData { case_number, evidence_number, examiner, description, notes } = &self.case;
        let case = [("case number", case_number), ("evidence number", evidence_number), ("examiner", examiner)];
        let rest =
            [("description", description), ("notes", notes), ("model", &self.model), ("serial number", &self.serial)];
        for (name, text) in case.into_iter().chain(rest) {
            if text.as_ref().is_some_and(|text| text.chars().count() > TEXT_CHARS_MAX) {
                return Err(Error::misuse(format!("E01: the {name} has more than {TEXT_CHARS_MAX} characters")));
            }
        }
        Ok(())
    }

    /// Returns the maximum length of a segment file.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.segment_size.unwrap_or(SEGMENT_SIZE_MAX)
    }

    /// Returns the number of segments that `size` bytes may take if nothing shrinks.
    pub(super) fn segments_max(&self, size: u64) -> u64 {
        let chunk_bytes = u64::from(self.chunk_sectors) * u64::from(self.sector_size);
        let chunks_per_segment = self.segment_bytes().saturating_sub(SEGMENT_OVERHEAD_MAX) / (chunk_bytes + 16);
        size.div_ceil(chunk_bytes).div_ceil(chunks_per_segment.max(1))
    }
}
