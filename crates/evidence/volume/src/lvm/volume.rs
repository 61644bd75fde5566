//! A logical volume as a device.

use cheetah_device::{ByteRange, DynDevice, Result};

use crate::parts::Parts;

/// A logical volume whose bytes all lie on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalVolume {
    /// The name of its volume group.
    pub group: String,
    /// Its name in that.
    pub name: String,
    /// Its identifier, without hyphens.
    pub id: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Whether all physical volumes of its group are here.
    pub is_of_whole_group: bool,
    pub(super) parts: Parts,
}

impl LogicalVolume {
    /// Its name, as the kernel's device mapper has it: group and volume with a hyphen between them, their own hyphens doubled.
    pub fn label(&self) -> String {
        let doubled = |name: &str| name.replace('-', "--");
        format!("{}-{}", doubled(&self.group), doubled(&self.name))
    }

    /// Its place in the device, if it lies there in one piece.
    pub fn in_one_piece(&self) -> Option<ByteRange> {
        self.parts.in_one_piece()
    }

    /// Its pieces in order, in the offsets of the device; `None` if it is striped.
    pub fn pieces(&self) -> Option<Vec<ByteRange>> {
        self.parts.pieces()
    }

    /// Each range of the device that holds some of it.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.parts.ranges()
    }

    /// Shows it, over a device with the offsets of the one in which it was found.
    ///
    /// # Errors
    ///
    /// If it lies beyond the device.
    pub fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        self.parts.over(below)
    }
}
