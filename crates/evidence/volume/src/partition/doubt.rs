//! What is in doubt about the partitions of a device.

use std::fmt;

use cheetah_device::Size;

use super::PARTITIONS_MAX;
use super::defect::Defect;

/// What is in doubt about the partitions of a device: a sentence. Sizes of sectors are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// The first sector cannot be read.
    #[error("The first sector cannot be read, so a partition table in it is unknown: {0}")]
    FirstSector(Defect),
    /// A GPT without its protective MBR is not used, because the source is a volume.
    #[error("There are remains of a GPT, but the source begins like a volume.")]
    RemainsOfGpt,
    /// A GPT without its protective MBR is used.
    #[error("The MBR that protects a GPT is missing; the GPT is used.")]
    NoProtectiveMbr,
    /// The backup of a GPT is used: what is wrong with its first copy.
    #[error("The backup of the GPT is used, because of {}.", listed(.0))]
    BackupUsed(Vec<BadCopy>),
    /// The first copy of a GPT is used: what is wrong with its backup.
    #[error("The GPT has no valid backup: {}.", listed(.0))]
    NoBackup(Vec<BadCopy>),
    /// The GPT counts in sectors of this size, and the source records another one.
    #[error("The GPT counts in sectors of {}, unlike the source.", Size(*.0))]
    GptUnlikeSource(u64),
    /// There is a protective MBR, and no valid GPT: what is wrong with it in sectors of each size in which there is one.
    #[error("The MBR says that there is a GPT, but no copy of it can be used: {}.", tables(.0))]
    NoGpt(Vec<BadGpt>),
    /// The MBR counts in sectors of another size than the source records.
    #[error(
        "The source's sectors have {recorded}, but only in sectors of {used} does the MBR lead to known formats; it is counted \
         in these.", recorded = Size(*.recorded), used = Size(*.used)
    )]
    MbrUnlikeSource {
        /// The size that the source records.
        recorded: u64,
        /// The size in which the table is counted.
        used: u64,
    },
    /// The MBR is as good in sectors of two sizes.
    #[error(
        "The size of the source's sectors is not recorded, and the MBR is possible in sectors of {used} and of {other}: {} It is \
         counted in {used}", if *.with_formats { "both lead to known formats." } else { "no place holds a known format." },
        used = Size(*.used), other = Size(*.other)
    )]
    Ambiguous {
        /// The size in which the table is counted.
        used: u64,
        /// The other one.
        other: u64,
        /// Whether the places hold known formats in sectors of both sizes.
        with_formats: bool,
    },
    /// Known formats decided in sectors of which size the MBR is counted.
    #[error(
        "The size of the source's sectors is not recorded; the MBR is counted in sectors of {used}, since {formats} of its \
         places then hold a known format, and {other_formats} in sectors of {other}.",
        used = Size(*.used), other = Size(*.other)
    )]
    ByFormats {
        /// The size in which the table is counted.
        used: u64,
        /// The other one.
        other: u64,
        /// The number of its places that hold a known format.
        formats: usize,
        /// The same in sectors of the other size.
        other_formats: usize,
    },
    /// A chain of boot records breaks off.
    #[error("logical partitions from number {first} on are missing: {why}")]
    NoLogical {
        /// The number of the first that is missing.
        first: u32,
        /// Why.
        why: Defect,
    },
    /// A table of another machine cannot be read.
    #[error("{table} cannot be read: {why}.")]
    Unreadable {
        /// Its kind, with an article.
        table: &'static str,
        /// Why.
        why: Defect,
    },
    /// The table has too many partitions.
    #[error("There are more than {PARTITIONS_MAX} partitions; the rest is left out.")]
    TooMany,
    /// Another table names other places.
    #[error(
        "There is also {table} in sectors of {}, which is not in use; it names {places} other places, of which {formats} hold a \
         known format.", Size(*.sector_bytes)
    )]
    NotInUse {
        /// Its kind, with an article.
        table: &'static str,
        /// The size of its sectors.
        sector_bytes: u64,
        /// The number of places that it alone names.
        places: usize,
        /// The number of these that hold a known format.
        formats: usize,
    },
}

/// A copy of a GPT that is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCopy {
    /// Whether it is the backup.
    pub is_backup: bool,
    /// What is wrong with it.
    pub why: Defect,
}

impl fmt::Display for BadCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.is_backup { "the backup" } else { "the first copy" }, self.why)
    }
}

/// A GPT of which no copy is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadGpt {
    /// The size of its sectors, in bytes.
    pub sector_bytes: u64,
    /// Its copies.
    pub copies: Vec<BadCopy>,
}

impl fmt::Display for BadGpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in sectors of {}, {}", Size(self.sector_bytes), listed(&self.copies))
    }
}

fn tables(bad: &[BadGpt]) -> String {
    if bad.is_empty() { "there is none, nor a backup".to_owned() } else { listed(bad) }
}

fn listed<T: fmt::Display>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
