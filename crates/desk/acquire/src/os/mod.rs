//! What differs by system, behind the same functions on each: the disks of this machine, their protection from writes, and how
//! files are stored. Another system is another folder here.

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
mod bsd;
#[cfg(not(target_os = "linux"))]
mod in_use;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(windows)]
mod windows;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cheetah_error::Result;
use cheetah_image::disk::Disk;

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
use bsd as system;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(windows)]
use windows as system;

/// A disk of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDisk {
    /// Its device, such as `/dev/sda` or `\\.\PhysicalDrive0`.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// How it is attached: `usb`, `nvme`, `ata`, `mmc`, `virtio` or `scsi`, if the system says so.
    pub bus: Option<&'static str>,
    /// What the system knows of it.
    pub properties: Disk,
    /// What uses it, a clause each: `sda1 is mounted on /`.
    pub users: Vec<String>,
}

/// How the device is protected from writes, beyond opening it read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// The system refused writes to it already.
    Found,
    /// The system refuses writes to it from now on, until the setting is changed or the machine restarted.
    Set,
    /// Nothing, and why.
    Not(String),
}

/// Where a file has content again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(any(windows, target_os = "macos"), allow(dead_code, reason = "these systems do not tell"))]
pub(crate) enum NextData {
    /// There, at the earliest.
    At(u64),
    /// Nowhere: all of the rest is a hole.
    None,
    /// The file system does not tell.
    Unknown,
}

/// Returns the disks of this machine that have a medium, by their names.
///
/// # Errors
///
/// If the system does not list them.
pub fn disks() -> io::Result<Vec<FoundDisk>> {
    system::disks()
}

/// Fails if this process certainly has not the rights to read a disk, and says what to do. An error of reading says less.
pub(crate) fn check_rights(device: &Path) -> Result<()> {
    system::check_rights(device)
}

/// Has the system refuse writes to `device` if that is `wanted` and possible. As long as the returned file is open, the device is
/// claimed.
pub(crate) fn protect(device: &Path, wanted: bool) -> (Protection, Option<File>) {
    system::protect(device, wanted)
}

/// The name of the export of a device whose path ends with no name of a file; `None` for any other.
pub(crate) fn export_name(device: &Path) -> Option<String> {
    system::export_name(device)
}

/// What must be known of a device for its image to be understood, a sentence each: that it changes while it is read, or that it is
/// read in clear. Blocks.
pub(crate) fn remarks(device: &Path) -> Vec<String> {
    system::remarks(device)
}

/// The bytes that a file takes on its disk; `None` if it is not there.
pub(crate) fn stored_bytes(path: &Path) -> Option<u64> {
    system::stored_bytes(path)
}

/// Where a file has content again, from `at` on.
pub(crate) fn next_data(file: &File, at: u64) -> NextData {
    system::next_data(file, at)
}

/// Has what the system keeps of a file in memory dropped, so that it is read from the medium.
pub(crate) fn forget_cached(path: &Path) {
    system::forget_cached(path);
}
