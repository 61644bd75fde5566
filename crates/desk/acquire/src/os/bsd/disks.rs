//! The disks of this machine.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use cheetah_image::disk::{Disk, known_of};
use cheetah_kit::storage::{Mount, disk_names, mounts};

use super::super::FoundDisk;
use super::users::users;

/// Returns the disks of this machine that have a medium, by their names.
///
/// # Errors
///
/// If the kernel does not list them, or does not let this user ask one for its size.
pub(crate) fn disks() -> io::Result<Vec<FoundDisk>> {
    let mounts = mounts()?;
    let mut names = disk_names()?;
    names.sort_by_key(|name| (name.len(), name.clone()));
    let mut found = Vec::new();
    for name in names {
        let path = Path::new("/dev").join(&name);
        match File::open(&path).and_then(|disk| known_of(&disk)) {
            Ok((size_bytes, properties)) if size_bytes > 0 => {
                found.push(described(&name, size_bytes, properties, &mounts));
            }
            // A list without it would look whole.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            // Without a medium.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(found)
}

fn described(name: &str, size_bytes: u64, properties: Disk, mounts: &[Mount]) -> FoundDisk {
    let path = Path::new("/dev").join(name);
    FoundDisk { path, size_bytes, bus: bus(name), properties, users: users(name, mounts) }
}

/// The bus of a disk, as far as the name of its driver says. One of `da` may be behind USB or SCSI.
fn bus(name: &str) -> Option<&'static str> {
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let known =
        [("ada", "ata"), ("nda", "nvme"), ("nvd", "nvme"), ("mmcsd", "mmc"), ("sdda", "mmc"), ("vtbd", "virtio")];
    known.into_iter().find(|(known, _)| *known == driver).map(|(_, bus)| bus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_driver_tells_the_bus() {
        let expected = [("ada0", Some("ata")), ("nda12", Some("nvme")), ("vtbd0", Some("virtio")), ("da0", None)];
        for (name, bus_name) in expected {
            assert_eq!(bus(name), bus_name, "{name}");
        }
        assert_eq!(bus("disk0"), None);
    }
}
