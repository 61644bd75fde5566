//! What Linux alone offers a process.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// What lets this user keep a process out of swap devices.
const LOCK_ALL: &str =
    "run as root, raise the limit (ulimit -l unlimited), or forbid swap (MemorySwapMax=0 in a systemd unit)";

/// Keeps all memory of this process, and with it its key, out of swap devices and core dumps.
///
/// # Errors
///
/// What the user can do if that is not permitted.
pub fn lock_own_memory() -> Result<(), &'static str> {
    let locked = lock_all();
    // For good: nothing that this process does allows them again.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let hidden = setrlimit(Resource::Core, none).is_ok() && cheetah_kit::process::forbid_core_dumps().is_ok();
    if locked && hidden { Ok(()) } else { Err("run as root, or raise the limit (ulimit -l unlimited)") }
}

/// Locks what this process has in memory, now and later.
fn lock_all() -> bool {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    // Locking must not make a later allocation fail, which it does at a limit. Root of a container may have one.
    locked_bytes_max().is_none() && rustix::mm::mlockall(flags).is_ok()
}

/// Keeps all memory of this process out of swap devices. Where there is none that it may reach, nothing is locked: the allocator
/// cannot give locked memory back.
///
/// # Errors
///
/// What the user can do if it may reach one, and locking is not permitted.
pub fn keep_from_swap() -> Result<(), &'static str> {
    let own = || std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = Path::new("/sys/fs/cgroup");
    if !may_swap() || group_has_no_swap(&own(), groups) || lock_all() { Ok(()) } else { Err(LOCK_ALL) }
}

/// Whether a control group under `root` that a process is in has no swap, by its `/proc/PID/cgroup`; a limit of an ancestor applies, too.
fn group_has_no_swap(own: &str, root: &Path) -> bool {
    // Version 1 limits memory and swap together.
    let Some(group) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    let deepest = root.join(group);
    let mut groups = deepest.ancestors().take_while(|group| group.starts_with(root));
    groups.any(|group| std::fs::read_to_string(group.join("memory.swap.max")).is_ok_and(|limit| limit.trim() == "0"))
}

/// The bytes that this user can lock; `None` without a limit.
pub fn locked_bytes_max() -> Option<u64> {
    let may_lock_all = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    getrlimit(Resource::Memlock).current.filter(|_| !may_lock_all)
}

/// Whether there is a swap device or file.
pub fn may_swap() -> bool {
    // The first line has the headings.
    std::fs::read_to_string("/proc/swaps").is_ok_and(|table| table.lines().count() > 1)
}

/// Drops what the kernel keeps of a file in memory.
pub fn forget_cached(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Drops what the kernel keeps of all files in memory.
///
/// # Errors
///
/// If this is not root.
pub fn drop_caches() -> io::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_no_swap_if_its_control_group_or_an_ancestor_has_none() {
        let root = tempfile::tempdir().unwrap();
        let has_none = |own: &str| group_has_no_swap(own, root.path());
        let limit = |group: &str, limit: &str| {
            let group = root.path().join(group);
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join("memory.swap.max"), limit).unwrap();
        };
        assert!(!has_none("0::/a/b\n"));
        limit("a/b", "max\n");
        limit("a", "4096\n");
        assert!(!has_none("0::/a/b\n"));
        limit("a", "0\n");
        assert!(has_none("4:cpuset:/x\n0::/a/b\n") && has_none("0::/a\n"));
        assert!(!has_none("0::/\n") && !has_none("5:memory:/a\n") && !has_none(""));
    }
}
