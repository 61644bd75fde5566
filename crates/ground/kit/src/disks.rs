//! The disks that this machine's kernel has a driver for.

use std::fs;
use std::io;
use std::path::Path;

/// The kernel's directory of block devices (Documentation/ABI/stable/sysfs-block).
pub const SYS_BLOCK: &str = "/sys/block";

/// Prefixes of block devices that are no disks: they are made of files and of memory.
const NO_DISKS: [&str; 3] = ["loop", "ram", "zram"];

/// The names of the disks in a directory such as [`SYS_BLOCK`], in no order. In a name, `!` stands for `/`.
///
/// # Errors
///
/// If the directory cannot be read.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !NO_DISKS.iter().any(|prefix| name.starts_with(prefix)));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_devices_of_files_and_of_memory_are_no_disks() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["loop0", "sda", "ram1", "nvme0n1", "zram0", "sr0"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut found = names(directory.path()).unwrap();
        found.sort();
        assert_eq!(found, ["nvme0n1", "sda", "sr0"]);
        names(&directory.path().join("none")).unwrap_err();
    }
}
