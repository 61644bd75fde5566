//! Linux.

mod process;
mod signals;
mod stdout;

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

pub use cheetah_attach as attach;
use cheetah_error::Result;

use super::Feature;
pub use process::{
    become_program, drop_caches, forget_cached, keep_files_private, keep_from_ctrl_c, kernel_release, killed_by,
    leave_stderr, leave_terminal, lock_own_memory, locked_bytes_max, start_apart, stop,
};
pub use signals::Signals;
pub use stdout::is_stdout_closed;

/// The system in a sentence about what it does.
pub const SYSTEM: &str = "the kernel";

/// What lets this user lock more memory.
pub const LOCK_MORE: &str = "run as root, grant CAP_IPC_LOCK, or raise the limit (ulimit -l unlimited, or LimitMEMLOCK=infinity in \
                             a systemd unit)";

/// Whether an agent leaves nothing on this machine unless it is told otherwise.
pub const LEAVES_NOTHING: bool = false;

/// Fails for what this system lacks: nothing.
///
/// # Errors
///
/// None.
pub fn offers(_feature: Feature) -> Result<()> {
    Ok(())
}

/// Whether the mode of a file lets every user read and write it.
pub fn is_for_every_user(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.mode() & 0o006 == 0o006)
}

/// Whether the terminal can move its cursor; another one gets lines, as a pipe does.
pub fn can_move_cursor() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}
