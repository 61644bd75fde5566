//! This process, and those that it starts.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::process::CommandExt as _;
use std::process::{Command, ExitStatus};

use tokio::signal::windows::{ctrl_break, ctrl_c};

/// `CREATE_NEW_PROCESS_GROUP` and `CREATE_NO_WINDOW` (processthreadsapi.h).
const NEW_PROCESS_GROUP: u32 = 0x0000_0200;
const NO_WINDOW: u32 = 0x0800_0000;

/// Files have the rights of their folder: those of a user's profile are the user's own, and the user chooses the folder.
pub fn keep_files_private() {}

/// Keeps this process out of reports of failures, which hold memory. Windows locks memory by the piece only: the pieces with keys
/// are, and copies of them on the stack are not.
///
/// # Errors
///
/// What the user can do.
pub fn lock_own_memory() -> Result<(), &'static str> {
    let _ = cheetah_kit::process::forbid_core_dumps();
    Err("Windows locks no whole process; revoke the member once this is done, as its key may be in the page file")
}

/// Locks nothing: see [`lock_own_memory`].
///
/// # Errors
///
/// What the user can do.
pub fn keep_from_swap() -> Result<(), &'static str> {
    Err("encrypt the page file (fsutil behavior set encryptpagingfile 1)")
}

/// The bytes that this user can lock; there is no limit but the working set, which a node raises.
pub fn locked_bytes_max() -> Option<u64> {
    None
}

/// Whether there is a page file: it is not looked for.
pub fn may_swap() -> bool {
    true
}

/// The version of the kernel.
pub fn kernel_release() -> Option<String> {
    None
}

/// A process that was started without a window has no console that could be closed.
///
/// # Errors
///
/// None.
pub fn leave_terminal() -> io::Result<()> {
    Ok(())
}

/// Leaves stderr as it is: only mounts and block devices close it.
///
/// # Errors
///
/// None.
pub fn leave_stderr() -> io::Result<()> {
    Ok(())
}

/// Has a program that will be started have a console of its own, without a window.
pub fn start_apart(command: &mut Command) {
    command.creation_flags(NEW_PROCESS_GROUP | NO_WINDOW);
}

/// Runs a program to its end, and ends this process with its exit code. Returns only if it cannot be started. Ctrl-C reaches both: the
/// program decides what to do, and this process waits for it. The end of the window or of the session is not caught: it ends both, and
/// nothing is left to do here.
pub fn become_program(mut command: Command) -> io::Error {
    let _caught = (ctrl_c(), ctrl_break());
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Keeps Ctrl-C from reaching a program that will be started.
pub fn keep_from_ctrl_c(command: &mut tokio::process::Command) {
    command.creation_flags(NEW_PROCESS_GROUP);
}

/// The number of the signal that ended a process: there are none.
pub fn killed_by(_status: ExitStatus) -> Option<i32> {
    None
}

/// Asks a process to stop: there is no way to ask one that has no window.
///
/// # Errors
///
/// Always.
pub fn stop(_pid: u32) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
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

/// Whether the process was started without a stdout.
pub fn is_stdout_closed() -> bool {
    io::stdout().as_raw_handle().is_null()
}
