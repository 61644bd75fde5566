//! What Linux alone offers a process.

use std::fs::File;
use std::io;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Keeps all memory of this process, and with it its key, out of swap devices and core dumps.
///
/// # Errors
///
/// What the user can do if that is not permitted.
pub fn lock_own_memory() -> Result<(), &'static str> {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    // Locking must not make a later allocation fail, which it does at a limit.
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    let may = unlimited || cheetah_kit::process::is_privileged();
    let locked = may && rustix::mm::mlockall(flags).is_ok();
    // For good: nothing that this process does allows them again.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let hidden = setrlimit(Resource::Core, none).is_ok() && cheetah_kit::process::forbid_core_dumps().is_ok();
    if locked && hidden { Ok(()) } else { Err("run as root, or raise the limit (ulimit -l unlimited)") }
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
