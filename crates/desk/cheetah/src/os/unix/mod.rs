//! Linux, FreeBSD and macOS.

mod process;
mod signals;
mod stdout;

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

pub use process::{
    become_program, keep_files_private, keep_from_ctrl_c, kernel_release, killed_by, leave_stderr, leave_terminal,
    start_apart, stop,
};
pub use signals::Signals;
pub use stdout::is_stdout_closed;

/// The system in a sentence about what it does.
pub const SYSTEM: &str = "the kernel";

/// Whether an agent leaves nothing on this machine unless it is told otherwise.
pub const LEAVES_NOTHING: bool = false;

/// Whether the mode of a file lets every user read and write it.
pub fn is_for_every_user(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.mode() & 0o006 == 0o006)
}

/// Whether the terminal can move its cursor; another one gets lines, as a pipe does.
pub fn can_move_cursor() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}
