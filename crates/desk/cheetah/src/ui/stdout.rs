//! Stdout, to which the answers of commands go. An answer that is not written makes the command fail.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_device::os_error;

use super::stderr;
use crate::failure::{Failure, Result};
use crate::os;

/// Whether a line was written.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// The first error in writing.
static ERROR: OnceLock<io::Error> = OnceLock::new();

/// Fails if stdout was closed when the process started.
fn check_open() -> io::Result<()> {
    match os::is_stdout_closed() {
        true => Err(io::Error::other("it is closed; redirect it to a file or to /dev/null")),
        false => Ok(()),
    }
}

/// Writes a line, after the lines queued for stderr. It is no error if a reader closes the pipe after the first line
/// (`cheetah room list | head -1`), but if no line could be written, the answer is missing.
pub fn print(line: impl Display) {
    stderr::flush(stderr::FLUSH_TIMEOUT);
    let mut stdout = io::stdout();
    match check_open().and_then(|()| writeln!(stdout, "{line}")).and_then(|()| stdout.flush()) {
        Ok(()) => WRITTEN.store(true, Ordering::Relaxed),
        Err(error) if error.kind() == ErrorKind::BrokenPipe && WRITTEN.load(Ordering::Relaxed) => {}
        Err(error) => {
            let _ = ERROR.set(error);
        }
    }
}

/// Fails if an answer could not be written: a script must not take an empty file for an answer.
pub fn finish() -> Result<()> {
    match ERROR.get() {
        Some(error) => Err(missing("the work is done, but its answer", error)),
        None => Ok(()),
    }
}

/// Prints a help text of clap.
pub fn print_help(help: &clap::Error) -> Result<()> {
    match check_open().and_then(|()| help.print()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(missing("the text", &error)),
        _ => Ok(()),
    }
}

/// Fails if stdout is closed, for a command that another program carries out, which would not notice.
pub fn check() -> Result<()> {
    check_open().map_err(|error| missing("an answer", &error))
}

fn missing(what: &str, error: &io::Error) -> Failure {
    Failure::failed(format!("{what} cannot be written to stdout: {}", os_error::describe(error)))
}
