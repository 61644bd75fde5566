//! The disks that this machine's kernel has a driver for.

use std::fs;
use std::path::Path;

/// Prefixes of block devices that are no disks: they are made of files and of memory.
const NO_DISKS: [&str; 3] = ["loop", "ram", "zram"];

/// The file by which the boot image marks itself.
const BOOT_IMAGE_MARK: &str = "/run/cheetah-boot-image";

/// Whether this machine was started from the boot image.
pub(crate) fn is_boot_image() -> bool {
    Path::new(BOOT_IMAGE_MARK).exists()
}

/// The number of disks that programs on this machine could read: 0 on a machine that was started from the lending boot image,
/// which has no storage driver. `None` if the kernel does not say.
pub(crate) fn visible() -> Option<u32> {
    let names = fs::read_dir("/sys/block").ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    Some(count(names.map(|name| name.to_string_lossy().into_owned())))
}

fn count(names: impl Iterator<Item = String>) -> u32 {
    names.filter(|name| !NO_DISKS.iter().any(|prefix| name.starts_with(prefix))).fold(0, |count, _| count + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disks_are_counted() {
        let names = ["loop0", "sda", "ram1", "nvme0n1", "zram0", "sr0", "vdb", "mmcblk0"];
        assert_eq!(count(names.into_iter().map(String::from)), 5);
    }
}
