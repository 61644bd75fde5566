//! The disks of this machine, by sysfs (Documentation/ABI/stable/sysfs-block).

use std::fs;
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
    Some(FoundDisk {
        // In sysfs, '!' stands for the '/' in a device's name.
        path: Path::new("/dev").join(name.replace('!', "/")),
        size_bytes,
        bus: fs::canonicalize(folder).ok().and_then(|place| bus(&place)),
        properties: Disk::look(folder),
        users: in_use.users(folder),
    })
}

/// The bus on the way to a device, by the folders of its place in sysfs. A disk behind USB is also one of SCSI.
fn bus(place: &Path) -> Option<&'static str> {
    let has = |prefix: &str| place.iter().any(|part| part.to_string_lossy().starts_with(prefix));
    let known =
        [("usb", "usb"), ("nvme", "nvme"), ("ata", "ata"), ("mmc", "mmc"), ("virtio", "virtio"), ("target", "scsi")];
    known.into_iter().find(|(prefix, _)| has(prefix)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_bus_nearest_to_the_machine_counts() {
        let places = [
            ("/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb", Some("usb")),
            ("/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda", Some("ata")),
            ("/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1", Some("nvme")),
            ("/sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vda", Some("virtio")),
            ("/sys/devices/pci0000:00/0000:00:10.0/host2/target2:0:0/2:0:0:0/block/sdc", Some("scsi")),
            ("/sys/devices/virtual/block/dm-0", None),
        ];
        for (place, expected) in places {
            assert_eq!(bus(Path::new(place)), expected, "{place}");
        }
    }
}
