//! Open disks: block devices.

use std::fs::File;
use std::io::Result as IoResult;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, SeekFrom};

use super::ata;
use crate::disk::{self, Disk};

/// Whether a disk can be read in whole sectors only. The page cache takes any range.
pub(crate) const WHOLE_SECTORS: bool = false;

/// What is known of an open disk.
pub(crate) struct OpenDisk {
    /// Its folder in sysfs, which disappears with the device.
    folder: Option<PathBuf>,
}

impl OpenDisk {
    /// Looks at an open disk; also returns its size in bytes.
    pub(crate) fn of(file: &File) -> IoResult<(Self, u64)> {
        let size = rustix::fs::seek(file, SeekFrom::End(0))?;
        let numbers = file.metadata()?.rdev();
        let folder = disk::folder(rustix::fs::major(numbers), rustix::fs::minor(numbers));
        Ok((Self { folder: folder.exists().then_some(folder) }, size))
    }

    /// The facts that the kernel reports.
    pub(crate) fn look(&self, file: &File) -> Disk {
        let mut disk = self.folder.as_deref().map(Disk::look).unwrap_or_default();
        if disk.aoe.is_some() {
            // The report then lacks them. It still has the target's address.
            let names = ata::names(file).unwrap_or_default();
            (disk.model, disk.serial) = (names.model, names.serial);
        }
        disk
    }

    /// Whether it was there, and is not any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.folder.as_ref().is_some_and(|folder| !folder.exists())
    }
}

/// Reopens a disk to read it past the page cache, even if its path now leads elsewhere. Also returns the bytes in a logical sector.
pub(crate) fn past_the_cache(disk: &File) -> IoResult<(File, u64)> {
    let path = format!("/proc/self/fd/{}", disk.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let sector = rustix::fs::ioctl_blksszget(&file)?.max(512).into();
    Ok((file, sector))
}
