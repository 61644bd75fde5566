//! Having the kernel refuse writes to a disk.
//!
//! An agent never writes, but other programs on its machine might. Where the device is a disk that nothing uses, the
//! kernel is made to treat it as read-only (`blockdev --setro`). A disk in use is left alone: the running system would
//! lose what it writes, which an examiner of a live machine does not want.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cheetah_device::os_error;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::super::Protection;
use super::setro::set_read_only;

/// Protects `device`, as [`protect`](crate::os::protect) says. As long as the returned file is open, no other process can claim
/// the device, for example by mounting it.
///
/// Only then does the read-only flag protect: a process that had the device open for writing before may continue to
/// write to it (Linux only logs a warning).
pub(crate) fn protect(device: &Path, wanted: bool) -> (Protection, Option<File>) {
    let not = |why: String| (Protection::Not(why), None);
    let Ok(metadata) = fs::metadata(device) else { return not("it cannot be looked at".to_owned()) };
    if !metadata.file_type().is_block_device() {
        return not("it is a file, not a disk".to_owned());
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let folder = cheetah_image::disk::folder(major, minor);
    if let Some(user) = InUse::now().users(&folder).first() {
        return not(format!("it is in use: {user}"));
    }
    let claimed = match claim(device) {
        Ok(claimed) => claimed,
        Err(Errno::BUSY) => return not("it is in use".to_owned()),
        Err(error) => return not(format!("it cannot be claimed: {}", os_error::describe(&error.into()))),
    };
    let protection = match number(&folder.join("ro")) {
        Some(1) => Protection::Found,
        _ if !wanted => return not("it was not asked for".to_owned()),
        _ => match set_read_only(device) {
            // The kernel's state counts, not the success of the call.
            Ok(()) if number(&folder.join("ro")) == Some(1) => Protection::Set,
            Ok(()) => return not("the kernel did not take it".to_owned()),
            Err(error) => return not(format!("the kernel refused: {}", os_error::describe(&error))),
        },
    };
    // A partition can be written to through the disk it is on.
    if folder.join("partition").exists() && number(&folder.join("../ro")) != Some(1) {
        return not("it is a partition, and the disk it is on can be written to".to_owned());
    }
    (protection, Some(claimed))
}

/// Opens the device for reading, exclusively. Fails with `BUSY` if it is claimed already: by a file system (also one
/// mounted under another device number), a RAID or a virtual machine.
fn claim(device: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(device, flags, Mode::empty()).map(File::from)
}

pub(super) fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What this machine has mounted and swaps to.
pub(super) struct InUse {
    /// The content of /proc/self/mountinfo.
    pub mounts: String,
    /// The content of /proc/swaps.
    pub swaps: String,
}

impl InUse {
    /// As it is now.
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self { mounts: read("/proc/self/mountinfo"), swaps: read("/proc/swaps") }
    }

    /// The users of the disk or the partition with this folder in sysfs, and of its partitions: one of each.
    pub fn users(&self, folder: &Path) -> Vec<String> {
        parts(folder).iter().filter_map(|part| user_of(part, &self.mounts, &self.swaps)).collect()
    }
}

/// The device itself and its partitions.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let inner = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut inner: Vec<_> = inner.filter(|path| path.join("partition").exists()).collect();
    inner.sort_by_key(|path| number(&path.join("partition")));
    inner.insert(0, folder.to_path_buf());
    inner
}

fn user_of(part: &Path, mounts: &str, swaps: &str) -> Option<String> {
    let name = fs::canonicalize(part).ok()?.file_name()?.to_string_lossy().into_owned();
    let numbers = fs::read_to_string(part.join("dev")).ok()?;
    // Fields of a line: ID, parent's ID, device, root, mount point (proc_pid_mountinfo(5)).
    let mounted = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    if let Some(mount) = mounted.into_iter().find(|fields| fields.get(2) == Some(&numbers.trim())) {
        return Some(format!("{name} is mounted on {}", mount.get(4).unwrap_or(&"?")));
    }
    if swaps.lines().any(|line| line.split_whitespace().next() == Some(&format!("/dev/{name}"))) {
        return Some(format!("{name} is swapped to"));
    }
    let mut holders = fs::read_dir(part.join("holders")).ok()?.flatten();
    holders.next().map(|holder| format!("{name} is part of {}", holder.file_name().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_partition_is_mounted_swapped_to_or_held_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("sdz/dev", "8:400\n");
        put("sdz/sdz1/partition", "1\n");
        put("sdz/sdz1/dev", "8:401\n");
        put("sdz/queue/dev", "no partition");
        let disk = dir.path().join("sdz");
        let user = |mounts: &str, swaps: &str| {
            InUse { mounts: mounts.into(), swaps: swaps.into() }.users(&disk).into_iter().next()
        };
        assert_eq!(user("25 1 8:4011 / /x rw - ext4 /dev/sdy rw\n", "Filename Type\n"), None);
        let mounted = user("25 1 8:401 / /mnt/x rw - ext4 /dev/sdz1 rw\n", "").unwrap();
        assert_eq!(mounted, "sdz1 is mounted on /mnt/x");
        assert_eq!(user("", "Filename Type\n/dev/sdz partition 1 0 -2\n").unwrap(), "sdz is swapped to");
        put("sdz/sdz1/holders/dm-0", "");
        assert_eq!(user("", "").unwrap(), "sdz1 is part of dm-0");
    }

    #[test]
    fn a_file_is_not_protected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(protect(file.path(), true), (Protection::Not(_), None)));
    }
}
