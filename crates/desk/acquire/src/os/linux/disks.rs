//! The disks of this machine, by sysfs (Documentation/ABI/stable/sysfs-block).

use std::io;
use std::path::Path;

use cheetah_image::disk::Disk;
use cheetah_kit::disks::{SYS_BLOCK, names};

use super::super::FoundDisk;
use super::protect::{InUse, number};

/// The unit of the size in sysfs, in bytes, whatever the disk's sectors are.
const SIZE_UNIT_BYTES: u64 = 512;

/// Returns the disks of this machine that have a medium, by their names.
///
/// # Errors
///
/// If the kernel does not list them.
pub(crate) fn disks() -> io::Result<Vec<FoundDisk>> {
    found(Path::new(SYS_BLOCK), &InUse::now())
}

fn found(folder: &Path, in_use: &InUse) -> io::Result<Vec<FoundDisk>> {
    let mut names = names(folder)?;
    names.sort_by_key(|name| (name.len(), name.clone()));
    Ok(names.iter().filter_map(|name| look(name, &folder.join(name), in_use)).collect())
}

fn look(name: &str, folder: &Path, in_use: &InUse) -> Option<FoundDisk> {
    let size_bytes = number(&folder.join("size"))?.checked_mul(SIZE_UNIT_BYTES).filter(|size| *size > 0)?;
    let properties = Disk::look(folder);
    Some(FoundDisk {
        // In sysfs, '!' stands for the '/' in a device's name.
        path: Path::new("/dev").join(name.replace('!', "/")),
        size_bytes,
        bus: properties.bus,
        properties,
        users: in_use.users(folder),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn disks_with_a_medium_are_found_with_their_size_bus_and_users() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        for (name, sectors) in
            [("sda", "2048\n"), ("sdb", "8\n"), ("sr0", "0\n"), ("loop0", "8\n"), ("cciss!c0d0", "1\n")]
        {
            put(&format!("{name}/size"), sectors);
        }
        put("sda/dev", "8:0\n");
        put("sda/device/model", "Disk 7\n");
        put("sda/sda1/partition", "1\n");
        put("sda/sda1/dev", "8:1\n");
        let in_use = InUse { mounts: "25 1 8:1 / /mnt rw - ext4 /dev/sda1 rw\n".into(), swaps: "/dev/sda x\n".into() };
        let disks = found(dir.path(), &in_use).unwrap();
        let names: Vec<_> = disks.iter().map(|disk| (disk.path.to_str().unwrap(), disk.size_bytes)).collect();
        assert_eq!(names, [("/dev/sda", 1 << 20), ("/dev/sdb", 4096), ("/dev/cciss/c0d0", 512)]);
        assert_eq!(disks[0].properties.model.as_deref(), Some("Disk 7"));
        assert_eq!(disks[0].users, ["sda is swapped to", "sda1 is mounted on /mnt"]);
        assert!(disks[1].users.is_empty());
        assert!(found(&dir.path().join("absent"), &in_use).is_err());
    }
}
