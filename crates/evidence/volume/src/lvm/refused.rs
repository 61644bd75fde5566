//! What of a volume group is not opened, and why.

use std::fmt;

use cheetah_device::visible::OneLine;
use cheetah_device::{ByteRange, Error as DeviceError};

/// Something that is known and not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOpened {
    /// A physical volume whose metadata cannot be used.
    Physical {
        /// Its place in the device.
        place: ByteRange,
        /// Why.
        why: Defect,
    },
    /// A volume group with the name of another one.
    SameName {
        /// The name.
        name: String,
        /// The identifier of this one.
        id: String,
    },
    /// A physical volume of a group that is not there.
    Missing {
        /// The name of the group.
        group: String,
        /// The name of the physical volume in the group: `pv1`.
        physical: String,
        /// Its identifier.
        id: String,
        /// The device that it was when the metadata was written.
        hint: String,
    },
    /// A logical volume.
    Logical {
        /// The name of the group.
        group: String,
        /// The name of the volume.
        name: String,
        /// Why.
        why: Why,
    },
}

/// Why a physical volume is not used: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// What it says contradicts itself, its checksum is wrong, or it passes a limit.
    #[error("{0}")]
    Damaged(&'static str),
    /// Its metadata could not be read.
    #[error("its metadata could not be read: {0}")]
    Unread(#[from] DeviceError),
    /// Another one has its identifier: one of them may be an old copy.
    #[error("others have its identifier {0}, too")]
    SameId(String),
}

impl From<&'static str> for Defect {
    fn from(damage: &'static str) -> Self {
        Self::Damaged(damage)
    }
}

/// Why a logical volume is not opened: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It is of a kind that is not supported.
    #[error("it is {0}, which is not supported")]
    Kind(String),
    /// Parts of it lie on physical volumes that are missing.
    #[error("it lies on {}, not all of which {} here", .0.join(" and "), if .0.len() == 1 { "is" } else { "are" })]
    Missing(Vec<String>),
    /// It lies on another logical volume.
    #[error("it lies on the logical volume {0}; it was being moved, perhaps")]
    OnLogical(String),
    /// A snapshot is being merged into it.
    #[error("a snapshot is being merged into it")]
    Merging,
    /// It reaches beyond a physical volume.
    #[error("it reaches beyond the end of the physical volume {0}")]
    Beyond(String),
    /// What is said about it contradicts itself, or passes a limit.
    #[error("its metadata is damaged: {0}")]
    Damaged(&'static str),
}

impl Why {
    /// The reason for a segment of this type, as the metadata names it.
    pub(super) fn of_type(kind: &str) -> Self {
        let name = match kind.split('+').next().unwrap_or_default() {
            "thin" => "a thin volume",
            "thin-pool" => "a pool of thin volumes",
            "snapshot" => "a snapshot",
            "mirror" => "a mirror",
            "cache" | "writecache" => "a cached volume",
            "cache-pool" => "a cache",
            "vdo" | "vdo-pool" => "a volume of VDO",
            "integrity" => "a volume with integrity tags",
            "zero" | "error" => "a volume without data",
            raid if raid.starts_with("raid") => return Self::Kind(format!("a RAID ({})", OneLine(raid))),
            other => return Self::Kind(format!("of type {}", OneLine(other))),
        };
        Self::Kind(name.to_owned())
    }
}

impl fmt::Display for NotOpened {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Physical { place, why } => {
                write!(f, "the physical volume of LVM2 at byte {} is not used: {why}", place.offset)
            }
            Self::SameName { name, id } => {
                write!(f, "a volume group {name} ({id}) is not used: another one has its name, too")
            }
            Self::Missing { group, physical, id, hint } => {
                write!(f, "the volume group {group} is not complete: its physical volume {physical} ({id}")?;
                if !hint.is_empty() {
                    write!(f, ", once {}", OneLine(hint))?;
                }
                f.write_str(") is not here")
            }
            Self::Logical { group, name, why } => write!(f, "the logical volume {group}/{name} is not opened: {why}"),
        }
    }
}
