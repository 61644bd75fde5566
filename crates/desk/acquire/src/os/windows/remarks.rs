//! What must be known of a disk or a volume for its image to be understood.

use std::fs::File;
use std::io;
use std::os::windows::fs::FileExt as _;
use std::path::Path;

use cheetah_device::path_text::path_to_text;
use cheetah_windows::disks::{FoundDisk, disks, facts};
use cheetah_windows::name::Name;
use cheetah_windows::{Volume, extents_of, volumes};

use super::super::encrypted::{self, Start};
use super::super::in_use::{Remark, of_disk};

/// The bytes in a sector where the driver does not tell, and the fewest.
const SECTOR_BYTES: u32 = 512;
/// The most bytes in a sector, whatever the driver tells.
const SECTOR_BYTES_MAX: u32 = 64 << 10;

pub(crate) fn export_name(device: &Path) -> Option<String> {
    match Name::of(&path_to_text(device))? {
        Name::Disk(number) => Some(format!("PhysicalDrive{number}")),
        Name::Letter(letter) => Some(letter.to_string()),
        Name::Volume => Some("volume".to_owned()),
        Name::ShadowCopy(name) | Name::Other(name) => Some(name),
    }
}

pub(crate) fn remarks(device: &Path) -> Vec<String> {
    of_device(device).iter().map(ToString::to_string).collect()
}

fn of_device(device: &Path) -> Vec<Remark> {
    let text = path_to_text(device);
    let Some(name) = Name::of(&text) else { return Vec::new() };
    let encryption = |text: &str| of_volume(text, device);
    match name {
        Name::Disk(number) => of_whole_disk(&text, number, volumes()),
        Name::Letter(_) | Name::Volume => {
            [Remark::Mounted(text.to_string())].into_iter().chain(encryption(&text)).collect()
        }
        // Nothing changes it.
        Name::ShadowCopy(_) => encryption(&text).into_iter().collect(),
        // It may be a partition, which is read like its volume, or no part of a disk, of which nothing is known.
        Name::Other(_) => {
            let known = encryption(&text).filter(|remark| !matches!(remark, Remark::EncryptionUnknown(_)));
            of_disk(&text, None).into_iter().chain(known).collect()
        }
    }
}

fn of_whole_disk(text: &str, number: u32, mounted: io::Result<Vec<Volume>>) -> Vec<Remark> {
    let found = disks().into_iter().find(|disk| disk.number == number);
    let encrypted = found.as_ref().and_then(|disk| encrypted_parts(text, disk));
    let mut remarks = of_disk(text, found.zip(mounted.ok()).map(|(disk, mounted)| disk.users(&mounted)));
    remarks.extend(encrypted);
    remarks
}

fn encrypted_parts(text: &str, disk: &FoundDisk) -> Option<Remark> {
    let opened = File::open(Name::Disk(disk.number).to_string()).ok()?;
    encrypted::of_disk(text, &disk.partitions, |offset| sector_at(&opened, offset))
}

/// Whether it is encrypted on its disk. The volume itself tells its place there, whatever it is named by.
fn of_volume(text: &str, device: &Path) -> Option<Remark> {
    let opened = File::open(device).ok();
    let here = opened.as_ref().and_then(|volume| sector_at(volume, 0));
    let extents = opened.as_ref().map(extents_of).unwrap_or_default();
    encrypted::of_volume(text, here.as_deref(), &extents, |disk, offset| {
        sector_at(&File::open(Name::Disk(disk).to_string()).ok()?, offset)
    })
}

/// The sector of an open disk or volume at an offset in bytes.
fn sector_at(device: &File, offset: u64) -> Start {
    let sector_bytes = facts(device).sector_size.unwrap_or(SECTOR_BYTES).clamp(SECTOR_BYTES, SECTOR_BYTES_MAX);
    let mut sector = vec![0; sector_bytes as usize];
    let read = device.seek_read(&mut sector, offset).ok()?;
    // Anything shorter says nothing.
    (read >= SECTOR_BYTES as usize).then_some(sector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_the_list_does_not_have_may_be_in_use() {
        assert_eq!(remarks(Path::new(r"\\.\Harddisk0Partition3")).len(), 1);
    }
}
