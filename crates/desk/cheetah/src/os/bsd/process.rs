//! What FreeBSD and macOS offer a process.

use std::fs::File;
use std::io::{self, ErrorKind};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Keeps this process out of core dumps. Locking all of a process would take memory for all that it has mapped, used or not, so only
/// the pieces with keys are locked; copies of them on the stack are not.
///
/// # Errors
///
/// What the user can do.
pub fn lock_own_memory() -> Result<(), &'static str> {
    // For good: nothing that this process does allows them again.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = cheetah_kit::process::forbid_core_dumps();
    Err(
        "this system locks no process as it is used; revoke the member once this is done, as its key may be in swap space",
    )
}

/// Locks nothing: see [`lock_own_memory`]. macOS encrypts what it swaps out.
///
/// # Errors
///
/// On FreeBSD, what the user can do.
pub fn keep_from_swap() -> Result<(), &'static str> {
    if cfg!(target_os = "macos") { Ok(()) } else { Err("encrypt the swap space (.eli in /etc/fstab)") }
}

/// The bytes that this user can lock; `None` without a limit. There is another limit for all processes.
pub fn locked_bytes_max() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Whether there is swap space: it is not looked for.
pub fn may_swap() -> bool {
    true
}

/// Leaves the file in memory.
pub fn forget_cached(_file: &File) {}

/// Leaves the files in memory.
///
/// # Errors
///
/// Always.
pub fn drop_caches() -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
