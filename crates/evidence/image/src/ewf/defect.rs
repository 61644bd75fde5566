//! What is wrong with a segment.

/// A segment that cannot be used. It is the cause of the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("segment {number}: {why}")]
pub struct BadSegment {
    /// Its number, from 1.
    pub number: usize,
    /// Why.
    pub why: Defect,
}

/// What is wrong with a segment, or with a section of it. Offsets are in the segment, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It is not there, although the one before it says that another one follows.
    #[error("{name} is missing: {before} is followed by another segment; put it beside the others")]
    Missing {
        /// Its file.
        name: String,
        /// The file of the segment before it.
        before: String,
    },
    /// It was named as the first, and is another one.
    #[error("this is segment {number} of an image; name its first segment ({ending})")]
    NotFirst {
        /// The number in its header.
        number: usize,
        /// The ending of the name of a first segment.
        ending: &'static str,
    },
    /// Its header has the number of another one.
    #[error("its header has segment number {number} instead of {wanted}")]
    OtherNumber {
        /// The number in its header.
        number: usize,
        /// Its number.
        wanted: usize,
    },
    /// It is of another image.
    #[error("this segment is of another image than {first}; replace it with the right one")]
    OtherImage {
        /// The file of the first segment.
        first: String,
    },
    /// A section does not match its checksum.
    #[error("section {name} at offset {at} does not match its checksum")]
    Checksum {
        /// The name or the type of the section.
        name: String,
        /// Where it is.
        at: u64,
    },
    /// The entries of a table of chunks do not match their checksum.
    #[error("the table of chunks before offset {at} does not match its checksum")]
    TableChecksum {
        /// Where the checksum is.
        at: u64,
    },
    /// The text in a section cannot be unpacked.
    #[error("section {name} at offset {at} cannot be unpacked")]
    NotUnpacked {
        /// The name or the type of the section.
        name: String,
        /// Where it is.
        at: u64,
    },
}

impl Defect {
    /// Whether the image is damaged; otherwise, another file was meant.
    pub(super) const fn is_damage(&self) -> bool {
        !matches!(self, Self::NotFirst { .. } | Self::OtherImage { .. })
    }
}
