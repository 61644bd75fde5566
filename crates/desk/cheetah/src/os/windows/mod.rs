//! Windows: it has neither FUSE nor block devices of programs, and stops processes by events of their console.

mod process;
mod signals;

use std::fs::File;

use cheetah_error::next::Attach;
use cheetah_error::{Error, Kind, Result};

use super::Feature;
pub use process::{
    become_program, drop_caches, forget_cached, is_stdout_closed, keep_files_private, keep_from_ctrl_c, keep_from_swap,
    kernel_release, killed_by, leave_stderr, leave_terminal, lock_own_memory, locked_bytes_max, may_swap, start_apart,
    stop,
};
pub use signals::Signals;

/// The system in a sentence about what it does.
pub const SYSTEM: &str = "Windows";

/// What lets this user lock more memory.
pub const LOCK_MORE: &str = "run as administrator, or lend less";

/// What lets a node lock all that it lends.
pub const LOCK_LENT: &str = LOCK_MORE;

/// Whether an agent leaves nothing on this machine unless it is told otherwise.
pub const LEAVES_NOTHING: bool = true;

/// Fails for what this system lacks.
///
/// # Errors
///
/// With what Windows has not, and what the user can do instead.
pub fn offers(feature: Feature) -> Result<()> {
    Err(Error::new(Kind::Unsupported, format!("{feature}, which Windows does not have")).next(Attach::ExportOrGoThere))
}

/// Whether the mode of a file lets every user read and write it: files have no mode here.
pub fn is_for_every_user(_file: &File) -> bool {
    false
}

/// Whether the terminal can move its cursor; another one gets lines, as a pipe does. Consoles of Windows can; only terminals of
/// other systems set TERM.
pub fn can_move_cursor() -> bool {
    std::env::var_os("TERM").is_none_or(|term| !term.is_empty() && term != "dumb")
}
