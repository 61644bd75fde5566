//! Errors of commands: one sentence, and an exit code.

use std::any::Any;
use std::fmt;
use std::io;
use std::process::ExitCode;

use cheetah_device::os_error;

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The exit code of a failed command. clap itself exits with 2 if it cannot parse the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The command failed.
    Failed = 1,
    /// The command line makes no sense.
    Misused = 2,
    /// The evidence differs from its record or is not whole: a hash differs, a range cannot be read.
    Evidence = 3,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why a command failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What failed, where, and what to do next.
    pub message: String,
    /// Whether a child process has shown it on stderr already.
    pub shown: bool,
}

impl Failure {
    /// Returns a failure with code 1.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { code: Code::Failed, message: message.to_string(), shown: false }
    }

    /// Returns a failure with code 2.
    pub fn misused(message: impl fmt::Display) -> Self {
        Self { code: Code::Misused, message: message.to_string(), shown: false }
    }

    /// Returns a failure with code 3.
    pub fn evidence(message: impl fmt::Display) -> Self {
        Self { code: Code::Evidence, message: message.to_string(), shown: false }
    }

    /// The same failure, shown on stderr by a child process already.
    pub fn already_shown(self) -> Self {
        Self { shown: true, ..self }
    }

    /// Puts the operation that failed before the message.
    pub fn while_doing(self, what: impl fmt::Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The failure of a command in a process that failed because of `why`.
pub fn defect(why: String, command: Option<Failure>) -> Failure {
    const REPORT: &str = "this is a defect of cheetah: please report it, with the lines above";
    match command {
        Some(failure) => Failure { message: format!("{}: {why}; {REPORT}", failure.message), ..failure },
        None => Failure::failed(format!("{why}; {REPORT}")),
    }
}

/// Turns any error into a [`Failure`] that names the operation.
pub trait Context<T> {
    /// Puts `what` before the error: `cannot write case42.raw`. An error of the operating system is followed by the
    /// next step, where that is clear.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display + 'static> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::failed(format!("{what}: {}", describe(&error))))
    }
}

fn describe(error: &(impl fmt::Display + 'static)) -> String {
    let any: &dyn Any = error;
    if let Some(error) = any.downcast_ref::<io::Error>() {
        return os_error::describe(error);
    }
    match any.downcast_ref::<rustix::io::Errno>() {
        Some(errno) => os_error::describe(&io::Error::from(*errno)),
        None => error.to_string(),
    }
}

impl From<cheetah_error::Error> for Failure {
    fn from(error: cheetah_error::Error) -> Self {
        match error.exit_code() {
            2 => Self::misused(error),
            3 => Self::evidence(error),
            _ => Self::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_names_the_next_step_and_neither_an_errno_nor_a_temporary_file() {
        let missing =
            tempfile::Builder::new().prefix("secret").tempfile_in("/nonexistent").context("cannot write a.raw");
        assert_eq!(missing.unwrap_err().message, "cannot write a.raw: No such file or directory; check the path");
        let denied = Err::<(), _>(rustix::io::Errno::ACCESS).context("cannot open a.raw").unwrap_err();
        assert_eq!(denied.message, "cannot open a.raw: Permission denied; check its owner and mode, or run as root");
        let other = Err::<(), _>("out of order").context("cannot open a.raw").unwrap_err();
        assert_eq!(other.message, "cannot open a.raw: out of order");
    }
}
