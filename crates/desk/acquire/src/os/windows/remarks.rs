//! What must be known of a disk or a volume for its image to be understood.

use std::fs::File;
use std::io;
use std::os::windows::fs::FileExt as _;
use std::path::Path;

use cheetah_device::path_text::path_to_text;
use cheetah_windows::buffers::Partition;
use cheetah_windows::disks::{FoundDisk, disks, facts};
use cheetah_windows::name::Name;
use cheetah_windows::{Volume, volumes};

use super::super::in_use::{Remark, of_disk};

/// The first bytes of a volume that is encrypted with BitLocker, behind a jump of three bytes.
const BITLOCKER: &[u8] = b"-FVE-FS-";
const BITLOCKER_AT: usize = 3;

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
    let mounted = volumes();
    match name {
        Name::Disk(number) => of_whole_disk(&text, number, mounted),
        // Without the list, a volume is still said to change.
        Name::Letter(_) | Name::Volume => of_volume(&text, &name, &mounted.unwrap_or_default()),
        // Nothing changes it.
        Name::ShadowCopy(_) => Vec::new(),
        Name::Other(_) => of_disk(&text, None),
    }
}

fn of_whole_disk(text: &str, number: u32, mounted: io::Result<Vec<Volume>>) -> Vec<Remark> {
    let found = disks().into_iter().find(|disk| disk.number == number);
    let encrypted = found.as_ref().map(encrypted_partitions).unwrap_or_default();
    let mut remarks = of_disk(text, found.zip(mounted.ok()).map(|(disk, mounted)| disk.users(&mounted)));
    if !encrypted.is_empty() {
        remarks.push(Remark::ReadEncrypted(text.to_owned(), encrypted));
    }
    remarks
}

/// The numbers of the partitions that begin with a BitLocker volume.
fn encrypted_partitions(disk: &FoundDisk) -> Vec<u32> {
    let is_encrypted = |partition: &&Partition| begins_encrypted(disk.number, partition.offset);
    disk.partitions.iter().filter(is_encrypted).map(|partition| partition.number).collect()
}

fn of_volume(text: &str, name: &Name, mounted: &[Volume]) -> Vec<Remark> {
    let mut remarks = vec![Remark::Mounted(text.to_owned())];
    if let Name::Letter(letter) = name
        && mounted.iter().find(|volume| volume.paths.contains(&format!("{letter}:\\"))).is_some_and(is_bitlocker)
    {
        remarks.push(Remark::ReadInClear(text.to_owned()));
    }
    remarks
}

/// Whether the disk on which a volume begins has a BitLocker volume there.
fn is_bitlocker(volume: &Volume) -> bool {
    volume.extents.first().is_some_and(|extent| begins_encrypted(extent.disk, extent.offset))
}

/// Whether a disk has a BitLocker volume at an offset in bytes; `false`, too, if it cannot be read there.
fn begins_encrypted(disk: u32, offset: u64) -> bool {
    let begins = || {
        let disk = File::open(Name::Disk(disk).to_string()).ok()?;
        let mut sector = vec![0; facts(&disk).sector_size.unwrap_or(512) as usize];
        disk.seek_read(&mut sector, offset).ok()?;
        Some(sector.get(BITLOCKER_AT..)?.starts_with(BITLOCKER))
    };
    begins().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_the_list_does_not_have_may_be_in_use() {
        assert_eq!(remarks(Path::new(r"\\.\Harddisk0Partition3")).len(), 1);
    }
}
