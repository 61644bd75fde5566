//! Open disks: their size, sectors and names, as their drivers tell.

use std::fs::File;
use std::io::Result as IoResult;

use super::system;
use crate::disk::Disk;

/// Whether a disk can be read in whole sectors only: FreeBSD has no cache of disks, and that of macOS is passed by.
pub(crate) const WHOLE_SECTORS: bool = true;

/// The bytes in a sector where the driver does not tell.
const SECTOR_BYTES: u32 = 512;

/// What is known of an open disk.
pub(crate) struct OpenDisk {
    /// Its driver tells its size as long as it is there.
    disk: File,
}

impl OpenDisk {
    /// Looks at an open disk; also returns its size in bytes.
    pub(crate) fn of(file: &File) -> IoResult<(Self, u64)> {
        let size = system::size_bytes(file)?;
        Ok((Self { disk: file.try_clone()? }, size))
    }

    /// The facts that the driver reports.
    pub(crate) fn look(&self, file: &File) -> Disk {
        system::facts(file)
    }

    /// Whether it was there, and is not any more.
    pub(crate) fn is_gone(&self) -> bool {
        !is_disk(&self.disk)
    }
}

/// Whether the driver of an open device knows the size of a medium.
pub(super) fn is_disk(device: &File) -> bool {
    system::size_bytes(device).is_ok()
}

/// The size of an open disk, and what its driver tells of it.
pub(crate) fn known_of(file: &File) -> IoResult<(u64, Disk)> {
    Ok((system::size_bytes(file)?, system::facts(file)))
}

/// A second handle, whose reads leave nothing in a cache, and the bytes in a logical sector.
pub(crate) fn past_the_cache(disk: &File) -> IoResult<(File, u64)> {
    let file = disk.try_clone()?;
    system::do_not_cache(&file)?;
    let sector = system::facts(disk).sector_size.unwrap_or(SECTOR_BYTES).max(SECTOR_BYTES);
    Ok((file, sector.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_disk() {
        let file = tempfile::tempfile().unwrap();
        assert!(!is_disk(&file) && OpenDisk::of(&file).is_err());
    }
}
