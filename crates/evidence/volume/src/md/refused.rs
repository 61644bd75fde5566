//! What of an array is not opened, and why; and what is to be said of one that is.

use std::fmt;

use cheetah_device::visible::OneLine;
use cheetah_device::{ByteRange, Error as DeviceError};

/// Something that is known and not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOpened {
    /// A member whose superblock cannot be used.
    Member {
        /// Its place in the device.
        place: ByteRange,
        /// Why.
        why: Defect,
    },
    /// An array.
    Array {
        /// Its name.
        name: String,
        /// Its identifier.
        id: String,
        /// Why.
        why: Why,
        /// The devices that are left out of it.
        left_out: Vec<LeftOut>,
    },
}

/// Why a member is not used: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// What it says contradicts itself, its checksum is wrong, or it passes a limit.
    #[error("{0}")]
    Damaged(&'static str),
    /// Its list of bad blocks could not be read.
    #[error("its list of bad blocks could not be read: {0}")]
    Unread(#[from] DeviceError),
}

impl From<&'static str> for Defect {
    fn from(damage: &'static str) -> Self {
        Self::Damaged(damage)
    }
}

/// Why an array is not opened: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Its superblocks say that it cannot be.
    #[error("{0}")]
    Obstacle(#[from] Obstacle),
    /// It is of a kind that is not supported.
    #[error("it is {0}, which is not supported")]
    Kind(String),
    /// Too few of its members are there.
    #[error("it is {level} of {members} members, and {} not here", listed(.missing))]
    Missing {
        /// The level, in words.
        level: String,
        /// The number of members.
        members: usize,
        /// The numbers of those that are missing.
        missing: Vec<usize>,
    },
    /// A member is missing, and the parity may be old.
    #[error("it was not closed, so its parity may be old, and {} not here", listed(.0))]
    Dirty(Vec<usize>),
    /// Superblocks of the same time contradict each other.
    #[error("its superblocks contradict each other: parts of it were used apart from each other")]
    Contradiction,
    /// Some of its bytes are on bad blocks of a member, and it has no redundancy.
    #[error("member {0} has bad blocks, which is not supported without redundancy")]
    BadBlocks(usize),
    /// What is said about it contradicts itself, or passes a limit.
    #[error("its superblock is damaged: {0}")]
    Damaged(&'static str),
    /// Another one has its name, too.
    #[error("another one has its name, too")]
    SameName,
}

/// A device that is left out of its array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its place in the device that holds it.
    pub place: ByteRange,
    /// The member that it was.
    pub number: Option<u32>,
    /// Why.
    pub why: Unfit,
}

/// What is to be said of an array that is open: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// Members with these numbers are not here.
    Degraded(Vec<usize>),
    /// It has redundancy that may be old, and is not used.
    NotClosed,
    /// A device is left out of it.
    LeftOut(LeftOut),
}

/// Why a device is left out of its array: a clause about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The array has gone on without it.
    #[error("its count of events, {events}, is behind {newest}")]
    Behind {
        /// Its count of events.
        events: u64,
        /// That of the newest.
        newest: u64,
    },
    /// The others say that it failed or was removed.
    #[error("the array went on without it")]
    Gone,
    /// It did not have all of its content.
    #[error("it was being rebuilt")]
    Partial,
    /// It has another shape of the array.
    #[error("its superblock says otherwise of the array")]
    OtherShape,
    /// Its data lie beyond it.
    #[error("its data reach beyond its end")]
    Beyond,
    /// Its data are shorter than the array needs.
    #[error("it is too short")]
    Short,
    /// Its number is beyond those of the array.
    #[error("its number is too large")]
    NoNumber,
    /// Others have its number: all but one may be old copies.
    #[error("others have its number, too")]
    SameNumber,
}

/// What in a superblock keeps its array from being opened: a clause about the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The array is described elsewhere.
    #[error("it is a container, whose metadata are in the format of a controller or firmware")]
    Container,
    /// The array was being changed to another shape.
    #[error("it was being reshaped")]
    Reshape,
    /// Some of its content may be in a journal.
    #[error("it has a write journal, which may hold some of its content")]
    Journal,
    /// It has features that are not known.
    #[error("it has features that are not known (0x{0:x})")]
    Features(u32),
}

/// Members in words, with their verb.
pub(super) fn listed(members: &[usize]) -> String {
    let numbers: Vec<_> = members.iter().map(ToString::to_string).collect();
    match &numbers[..] {
        [one] => format!("member {one} is"),
        [first @ .., last] => format!("members {} and {last} are", first.join(", ")),
        [] => "members are".to_owned(),
    }
}

impl fmt::Display for NotOpened {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member { place, why } => {
                write!(f, "the member of a Linux software RAID at byte {} is not used: {why}", place.offset)
            }
            Self::Array { name, id, why, left_out } => {
                write!(f, "the array {} ({id}) is not opened: {why}", OneLine(name))?;
                left_out.iter().try_for_each(|one| write!(f, "; {one}"))
            }
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Degraded(missing) => write!(f, "degraded: {} not here", listed(missing)),
            Self::NotClosed => f.write_str("not closed: its redundancy may be old and is not used"),
            Self::LeftOut(one) => one.fmt(f),
        }
    }
}

impl fmt::Display for LeftOut {
    /// A clause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device at byte {}", self.place.offset)?;
        if let Some(number) = self.number {
            write!(f, " (member {number})")?;
        }
        write!(f, " is left out: {}", self.why)
    }
}
