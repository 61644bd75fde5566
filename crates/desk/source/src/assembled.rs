//! A volume that is put together from others: an array of Linux's software RAID, or a logical volume of LVM2.

use cheetah_device::{ByteRange, DynDevice, Size};
use cheetah_error::{Error, Result};
use cheetah_volume::lvm::LogicalVolume;
use cheetah_volume::md::Array;
use serde::Serialize;

/// A volume that is put together from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assembled {
    /// An array.
    Array(Array),
    /// A logical volume.
    Logical(LogicalVolume),
}

/// A volume that is put together, and where it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedVolume {
    /// The volume.
    pub volume: Assembled,
    /// Where its content begins: in the source, or behind its end if it lies there in several pieces.
    pub offset: u64,
}

/// The same, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Described<'a> {
    /// `md` or `lvm2`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    name: &'a str,
    /// The end of its name as a file of a mount.
    label: String,
    id: &'a str,
    /// What it is, and what is to be said of it.
    description: String,
    offset: u64,
    size_bytes: u64,
}

impl Assembled {
    /// The end of its name as a file of a mount.
    pub fn label(&self) -> String {
        match self {
            Self::Array(array) => array.label.clone(),
            Self::Logical(volume) => volume.label(),
        }
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.size_bytes,
            Self::Logical(volume) => volume.size_bytes,
        }
    }

    /// What it is, and what is to be said of it.
    pub fn description(&self) -> String {
        match self {
            Self::Array(array) => array.description(),
            Self::Logical(LogicalVolume { group, name, .. }) => format!("logical volume {group}/{name}"),
        }
    }

    /// Its place in the device that holds it, if it lies there in one piece.
    pub(crate) fn in_one_piece(&self) -> Option<ByteRange> {
        match self {
            Self::Array(array) => array.in_one_piece(),
            Self::Logical(volume) => volume.in_one_piece(),
        }
    }

    /// Its pieces in that device, if it lies there as a list of pieces.
    pub(crate) fn pieces(&self) -> Option<Vec<ByteRange>> {
        match self {
            Self::Array(array) => array.pieces(),
            Self::Logical(volume) => volume.pieces(),
        }
    }

    /// Shows it over that device.
    pub(crate) fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        match self {
            Self::Array(array) => array.over(below).map_err(Error::device("showing an array")),
            Self::Logical(volume) => volume.over(below).map_err(Error::device("showing a logical volume")),
        }
    }
}

impl PlacedVolume {
    /// Names it, with its size.
    pub fn description(&self) -> String {
        format!("{} ({})", self.volume.description(), Size(self.volume.size_bytes()))
    }

    pub(crate) fn described(&self) -> Described<'_> {
        let (kind, group, name, id) = match &self.volume {
            Assembled::Array(array) => ("md", None, &array.name, &array.id),
            Assembled::Logical(volume) => ("lvm2", Some(volume.group.as_str()), &volume.name, &volume.id),
        };
        let Self { volume, offset } = self;
        let (label, description, size_bytes) = (volume.label(), volume.description(), volume.size_bytes());
        Described { kind, group, name, label, id, description, offset: *offset, size_bytes }
    }
}
