//! This process, and those that it starts.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

/// Makes all files, folders and sockets that this process creates its user's own. Programs that it starts inherit this.
pub fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// The version of the kernel.
pub fn kernel_release() -> Option<String> {
    rustix::system::uname().release().to_str().ok().map(str::to_owned)
}

/// Leaves the terminal, so that closing it does not end this process.
///
/// # Errors
///
/// If this process leads a session already.
pub fn leave_terminal() -> io::Result<()> {
    Ok(rustix::process::setsid().map(drop)?)
}

/// Closes stderr: its reader may be waiting for end of file, and this process may last for days.
///
/// # Errors
///
/// If there is no /dev/null.
pub fn leave_stderr() -> io::Result<()> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stderr(&nowhere)?)
}

/// Has a program that will be started leave the terminal: it does so itself.
pub fn start_apart(_command: &mut Command) {}

/// Replaces this process by a program, which then gets the signals and sets the exit code. Returns only if it cannot be started.
pub fn become_program(mut command: Command) -> io::Error {
    command.exec()
}

/// Keeps Ctrl-C from reaching a program that will be started.
pub fn keep_from_ctrl_c(command: &mut tokio::process::Command) {
    command.process_group(0);
}

/// The number of the signal that ended a process, if one did.
pub fn killed_by(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Asks a process to stop (SIGTERM).
///
/// # Errors
///
/// If there is no such process.
pub fn stop(pid: u32) -> io::Result<()> {
    match Pid::from_raw(pid.cast_signed()) {
        Some(pid) => Ok(kill_process(pid, Signal::TERM)?),
        None => Ok(()),
    }
}
