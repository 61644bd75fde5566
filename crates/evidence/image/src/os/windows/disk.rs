//! Open disks: physical ones, partitions and volumes.

use std::fs::File;
use std::io::{Read as _, Result as IoResult, Seek as _, SeekFrom};

use cheetah_windows::disks::{facts, length, read_to_the_end};

use crate::disk::Disk;

/// Whether a disk can be read in whole sectors only: the system caches nothing of a disk.
pub(crate) const WHOLE_SECTORS: bool = true;

/// The bytes in a sector where the driver does not tell.
const SECTOR_BYTES: u32 = 512;

/// What is known of an open disk.
pub(crate) struct OpenDisk {
    /// The disk, if its driver tells its length as long as it is there.
    disk: Option<File>,
}

impl OpenDisk {
    /// Looks at an open disk; also returns its size in bytes.
    pub(crate) fn of(file: &File) -> IoResult<(Self, u64)> {
        // A whole disk does not know this request.
        let _ = read_to_the_end(file);
        let (size, disk) = match length(file) {
            Ok(size) => (size, Some(file.try_clone()?)),
            // Something that is read like a disk, and is none.
            Err(error) => {
                let mut at = file;
                let size = at.seek(SeekFrom::End(0)).map_err(|_| error)?;
                at.rewind()?;
                at.read_exact(&mut [0; SECTOR_BYTES as usize])?;
                (size, None)
            }
        };
        Ok((Self { disk }, size))
    }

    /// The facts that the driver reports.
    pub(crate) fn look(&self, file: &File) -> Disk {
        let found = facts(file);
        Disk {
            sector_size: found.sector_size,
            physical_sector_size: found.physical_sector_size,
            model: found.model,
            serial: found.serial,
            write_protected: found.write_protected,
            aoe: None,
        }
    }

    /// Whether it was there, and is not any more. Requests that were in flight end with the error of a bad sector then.
    pub(crate) fn is_gone(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| length(disk).is_err())
    }
}

/// A second handle, and the bytes in a logical sector.
pub(crate) fn past_the_cache(disk: &File) -> IoResult<(File, u64)> {
    let sector = facts(disk).sector_size.unwrap_or(SECTOR_BYTES).max(SECTOR_BYTES);
    Ok((disk.try_clone()?, sector.into()))
}
