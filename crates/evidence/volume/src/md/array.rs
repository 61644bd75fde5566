//! An array as a device.

use std::sync::Arc;

use cheetah_device::visible::OneLine;
use cheetah_device::{ByteRange, DynDevice, Result};

use super::redundant::{Redundant, Shown};
use super::refused::Remark;
use crate::parts::Parts;

/// An array of which enough members are in the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Its name, as its members have it.
    pub name: String,
    /// Its identifier, as `mdadm` prints it.
    pub id: String,
    /// Its name as a file, which no logical volume has.
    pub label: String,
    /// Its level, in words.
    pub level: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Whether all of its members are here.
    pub is_whole: bool,
    /// What is to be said of it: members that are not here, or that are left out.
    pub remarks: Vec<Remark>,
    pub(super) content: Content,
}

/// Where the content of an array lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// In parts of the device.
    Parts(Parts),
    /// On members, more than once or with parity.
    Redundant(Arc<Redundant>),
}

impl Array {
    /// Names it, and says what is to be said of it.
    pub fn description(&self) -> String {
        let mut text = format!("{} array {}", self.level, OneLine(&self.name));
        self.remarks.iter().for_each(|remark| text += &format!("; {remark}"));
        text
    }

    /// Its place in the device, if it lies there in one piece.
    pub fn in_one_piece(&self) -> Option<ByteRange> {
        match &self.content {
            Content::Parts(parts) => parts.in_one_piece(),
            Content::Redundant(_) => None,
        }
    }

    /// Its pieces in order, in the offsets of the device; `None` if it does not lie there as a list of pieces.
    pub fn pieces(&self) -> Option<Vec<ByteRange>> {
        match &self.content {
            Content::Parts(parts) => parts.pieces(),
            Content::Redundant(_) => None,
        }
    }

    /// Each range of the device that holds some of it.
    pub fn ranges(&self) -> Vec<ByteRange> {
        match &self.content {
            Content::Parts(parts) => parts.ranges().collect(),
            Content::Redundant(array) => array.ranges().collect(),
        }
    }

    /// Shows it, over a device with the offsets of the one in which it was found.
    ///
    /// # Errors
    ///
    /// If it lies beyond the device.
    pub fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        match &self.content {
            Content::Parts(parts) => parts.over(below),
            Content::Redundant(array) => Ok(Arc::new(Shown::new(Arc::clone(below), Arc::clone(array))?)),
        }
    }
}
