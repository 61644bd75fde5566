//! FreeBSD and macOS. Nothing here has been run yet: it compiles and links.

mod disks;
mod files;
mod protect;
mod users;

use std::path::Path;

use cheetah_error::Result;

pub(crate) use disks::disks;
pub(crate) use files::{forget_cached, next_data, stored_bytes};
pub(crate) use protect::{protect, remarks};

/// The system in a sentence about what it does.
const SYSTEM: &str = if cfg!(target_os = "macos") { "macOS" } else { "FreeBSD" };

/// The error of opening a disk says that it takes root.
pub(crate) fn check_rights(_device: &Path) -> Result<()> {
    Ok(())
}

/// A device's own name is that of its file.
pub(crate) fn export_name(_device: &Path) -> Option<String> {
    None
}
