//! What must be known of a disk or a volume for its image to be understood.

use std::fs::File;
use std::os::windows::fs::FileExt as _;
use std::path::Path;

use cheetah_device::path_text::path_to_text;
use cheetah_windows::disks::{disks, facts};
use cheetah_windows::name::Name;
use cheetah_windows::{Volume, volumes};

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

/// What must be known of a disk or a volume. Each has its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Remark {
    /// It may change while it is read: its users cannot be had.
    #[error(
        "whether this system writes to {0} while it is read is not known: if it does, the image mixes several moments"
    )]
    UsersUnknown(String),
    /// It changes while it is read: these are its users.
    #[error(
        "{0} is in use ({users}): this system writes to it while it is read, so the image mixes several moments",
        users = .1.join(", ")
    )]
    InUse(String, Vec<String>),
    /// It changes while it is read.
    #[error("{0} is a mounted volume: this system writes to it while it is read, so the image mixes several moments")]
    Mounted(String),
    /// It is encrypted on its disk.
    #[error("{0} is encrypted with BitLocker on its disk, and is read in clear here; the disk itself gives ciphertext")]
    ReadInClear(String),
}

fn of_device(device: &Path) -> Vec<Remark> {
    let text = path_to_text(device);
    let Some(name) = Name::of(&text) else { return Vec::new() };
    let mounted = volumes();
    match name {
        Name::Disk(number) => {
            let found = disks().into_iter().find(|disk| disk.number == number);
            of_disk(&text, found.zip(mounted.ok()).map(|(disk, mounted)| disk.users(&mounted)))
        }
        // Without the list, a volume is still said to change.
        Name::Letter(_) | Name::Volume => of_volume(&text, &name, &mounted.unwrap_or_default()),
        // Nothing changes it.
        Name::ShadowCopy(_) => Vec::new(),
        Name::Other(_) => of_disk(&text, None),
    }
}

/// What is said of a disk with these users; `None` if they cannot be had.
fn of_disk(text: &str, users: Option<Vec<String>>) -> Vec<Remark> {
    match users {
        None => vec![Remark::UsersUnknown(text.to_owned())],
        Some(users) if users.is_empty() => Vec::new(),
        Some(users) => vec![Remark::InUse(text.to_owned(), users)],
    }
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
    let begins = || {
        let extent = volume.extents.first()?;
        let disk = File::open(Name::Disk(extent.disk).to_string()).ok()?;
        let mut sector = vec![0; facts(&disk).sector_size.unwrap_or(512) as usize];
        disk.seek_read(&mut sector, extent.offset).ok()?;
        Some(sector.get(BITLOCKER_AT..)?.starts_with(BITLOCKER))
    };
    begins().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_users_cannot_be_had_is_not_one_without_users() {
        let disk = r"\\.\PhysicalDrive0";
        assert_eq!(of_disk(disk, Some(Vec::new())), []);
        let users = vec!["C:".to_owned()];
        assert_eq!(of_disk(disk, Some(users.clone())), [Remark::InUse(disk.to_owned(), users)]);
        assert_eq!(of_disk(disk, None), [Remark::UsersUnknown(disk.to_owned())]);
        assert_eq!(remarks(Path::new(r"\\.\Harddisk0Partition3")).len(), 1);
    }
}
