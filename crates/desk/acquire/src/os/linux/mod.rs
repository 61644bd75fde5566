//! Linux: sysfs, and the kernel's block devices.

mod disks;
mod files;
mod protect;
mod setro;

use std::path::Path;

use cheetah_error::Result;

pub(crate) use disks::disks;
pub(crate) use files::{forget_cached, next_data, stored_bytes};
pub(crate) use protect::protect;

/// The error of opening a disk says that it takes root.
pub(crate) fn check_rights(_device: &Path) -> Result<()> {
    Ok(())
}

/// A device's own name is that of its file.
pub(crate) fn export_name(_device: &Path) -> Option<String> {
    None
}

/// What uses a disk is said with its protection.
pub(crate) fn remarks(_device: &Path) -> Vec<String> {
    Vec::new()
}
