//! A volume that was found in a source, and where it is read.

use cheetah_device::visible::OneLine;
use cheetah_device::{ByteRange, DynDevice, Size};
use cheetah_error::{Error, Result};
use cheetah_unlock::OpenedVolume;
use cheetah_volume::lvm::LogicalVolume;
use cheetah_volume::md::Array;
use cheetah_volume::vss::Snapshot;
use serde::Serialize;

use super::copies::name_of;

/// A volume that was found in a source, beside the partitions of the source itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerVolume {
    /// The end of its name as a file of a mount: `p2.unlocked`, `md0`, `vg-home`, `md0.p1`.
    pub name: String,
    /// What it is.
    pub content: Content,
    /// Where it lies: in the source, or behind its end if it lies there in several pieces.
    pub range: ByteRange,
    /// Whether another volume was found in it, or has it as a part.
    pub is_used: bool,
    /// The number of the stack's steps over which it is shown.
    pub(super) below: usize,
}

/// What a volume is that was found in a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The content of an encrypted volume that a key opened.
    Opened(OpenedVolume),
    /// It is put together from parts.
    Assembled(Assembled),
    /// A partition of another volume that was found.
    Partition {
        /// The name of that volume.
        of: String,
        /// Its number.
        number: u32,
        /// What the table says of it.
        description: String,
    },
}

/// A volume that is put together from parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assembled {
    /// An array of Linux's software RAID.
    Array(Array),
    /// A logical volume of LVM2.
    Logical(LogicalVolume),
    /// A shadow copy of an NTFS volume.
    Snapshot {
        /// The name of that volume; empty for the source as a whole.
        of: String,
        /// The shadow copy.
        snapshot: Snapshot,
    },
}

/// A volume, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Described<'a> {
    /// `md`, `lvm2`, `vss` or `partition`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    name: &'a str,
    /// The end of its name as a file of a mount.
    label: &'a str,
    id: &'a str,
    /// What it is, and what is to be said of it.
    description: String,
    offset: u64,
    size_bytes: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_used: bool,
}

impl Assembled {
    /// The end of its name as a file of a mount.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Array(array) => array.label.clone(),
            Self::Logical(volume) => volume.label(),
            Self::Snapshot { of, snapshot } => name_of(of, snapshot.copy.number),
        }
    }

    pub(super) fn id(&self) -> &str {
        match self {
            Self::Array(array) => &array.id,
            Self::Logical(volume) => &volume.id,
            Self::Snapshot { snapshot, .. } => &snapshot.copy.store_id,
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.size_bytes,
            Self::Logical(volume) => volume.size_bytes,
            Self::Snapshot { snapshot, .. } => snapshot.copy.size_bytes,
        }
    }

    /// Whether all parts of it, and of its group, are here.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Array(array) => array.is_whole,
            Self::Logical(volume) => volume.is_of_whole_group,
            Self::Snapshot { .. } => true,
        }
    }

    /// What it is, and what is to be said of it.
    pub fn description(&self) -> String {
        match self {
            Self::Array(array) => array.description(),
            Self::Logical(LogicalVolume { group, name, .. }) => format!("logical volume {group}/{name}"),
            Self::Snapshot { of, snapshot } => {
                let copy = snapshot.copy.description();
                let copy = if of.is_empty() { copy } else { format!("{copy}, of {}", OneLine(of)) };
                match snapshot.lost_bytes() {
                    0 => copy,
                    bytes => format!("{copy}; {bytes} bytes of it were not in use, were not kept, and read as zeros"),
                }
            }
        }
    }

    /// Its place in the device that holds it, if it lies there in one piece.
    pub(super) fn in_one_piece(&self) -> Option<ByteRange> {
        match self {
            Self::Array(array) => array.in_one_piece(),
            Self::Logical(volume) => volume.in_one_piece(),
            Self::Snapshot { .. } => None,
        }
    }

    /// Its pieces in that device, if it lies there as a list of pieces.
    pub(super) fn pieces(&self) -> Option<Vec<ByteRange>> {
        match self {
            Self::Array(array) => array.pieces(),
            Self::Logical(volume) => volume.pieces(),
            Self::Snapshot { .. } => None,
        }
    }

    /// Shows it over that device.
    pub(super) fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        match self {
            Self::Array(array) => array.over(below).map_err(Error::device("showing an array")),
            Self::Logical(volume) => volume.over(below).map_err(Error::device("showing a logical volume")),
            Self::Snapshot { snapshot, .. } => snapshot.over(below).map_err(Error::device("showing a shadow copy")),
        }
    }
}

impl InnerVolume {
    /// What it is, and what is to be said of it.
    pub fn description(&self) -> String {
        match &self.content {
            Content::Opened(volume) => {
                format!("{}, opened with {}", OneLine(&volume.format), OneLine(&volume.protector))
            }
            Content::Assembled(volume) => volume.description(),
            Content::Partition { of, number, description } => {
                format!("partition {number} of {of}, {}", OneLine(description))
            }
        }
    }

    /// The same, with its size.
    pub fn sized_description(&self) -> String {
        format!("{} ({})", self.description(), Size(self.range.len))
    }

    /// The encrypted volume whose content it is, if it is that.
    pub fn opened(&self) -> Option<&OpenedVolume> {
        match &self.content {
            Content::Opened(volume) => Some(volume),
            Content::Assembled(_) | Content::Partition { .. } => None,
        }
    }

    /// The volume as JSON; `None` for an encrypted one that was opened, which is described elsewhere.
    pub(super) fn described(&self) -> Option<Described<'_>> {
        let (kind, group, name, id) = match &self.content {
            Content::Opened(_) => return None,
            Content::Assembled(Assembled::Array(array)) => ("md", None, array.name.as_str(), array.id.as_str()),
            Content::Assembled(Assembled::Logical(volume)) => {
                ("lvm2", Some(volume.group.as_str()), volume.name.as_str(), volume.id.as_str())
            }
            Content::Assembled(Assembled::Snapshot { snapshot, .. }) => {
                ("vss", None, self.name.as_str(), snapshot.copy.id.as_deref().unwrap_or_default())
            }
            Content::Partition { .. } => ("partition", None, self.name.as_str(), ""),
        };
        let (label, description, is_used) = (self.name.as_str(), self.description(), self.is_used);
        let (offset, size_bytes) = (self.range.offset, self.range.len);
        Some(Described { kind, group, name, label, id, description, offset, size_bytes, is_used })
    }
}
