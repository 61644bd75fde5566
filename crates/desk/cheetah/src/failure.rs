//! Errors of commands: one sentence with the next steps in words, and an exit code.

use std::any::Any;
use std::fmt;
use std::io;
use std::process::ExitCode;

use cheetah_device::os_error;
use cheetah_error::{Error, Kind, Next};

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
    /// The kind of the error; `None` if the command line itself says what failed.
    pub kind: Option<Kind>,
    /// What failed, where, and what to do next.
    pub message: String,
    /// The next steps, which the message names too.
    pub next: Vec<Next>,
    /// Whether a child process has shown it on stderr already.
    pub shown: bool,
}

impl Failure {
    fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, kind: None, message: message.to_string(), next: Vec::new(), shown: false }
    }

    /// Returns a failure with code 1.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(Code::Failed, message)
    }

    /// Returns a failure with code 2.
    pub fn misused(message: impl fmt::Display) -> Self {
        Self::new(Code::Misused, message)
    }

    /// Returns a failure with code 3.
    pub fn evidence(message: impl fmt::Display) -> Self {
        Self::new(Code::Evidence, message)
    }

    /// The word for its kind in the answer for programs.
    pub fn kind_name(&self) -> &'static str {
        let usual = match self.code {
            Code::Failed => Kind::Failed,
            Code::Misused => Kind::Misuse,
            Code::Evidence => Kind::Evidence,
        };
        self.kind.unwrap_or(usual).name()
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
        self.map_err(|error| {
            let (text, next) = describe(&error);
            let message = cheetah_words::with(format_args!("{what}: {text}"), &next);
            Failure { next, ..Failure::failed(message) }
        })
    }
}

/// What an error says, and its next steps.
fn describe(error: &(impl fmt::Display + 'static)) -> (String, Vec<Next>) {
    let any: &dyn Any = error;
    if let Some(error) = any.downcast_ref::<io::Error>() {
        return (os_error::describe(error), Next::of_io(error));
    }
    if let Some(error) = any.downcast_ref::<Error>() {
        return (error.to_string(), error.steps().to_vec());
    }
    (error.to_string(), Vec::new())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.exit_code() {
            2 => Code::Misused,
            3 => Code::Evidence,
            _ => Code::Failed,
        };
        let message = cheetah_words::sentence(&error);
        Self { kind: Some(error.kind()), next: error.steps().to_vec(), ..Self::new(code, message) }
    }
}

#[cfg(test)]
mod tests {
    use cheetah_error::next::Acquisition;

    use super::*;

    #[test]
    fn context_names_the_next_step_and_neither_an_errno_nor_a_temporary_file() {
        let missing =
            tempfile::Builder::new().prefix("secret").tempfile_in("/nonexistent").context("cannot write a.raw");
        assert_eq!(missing.unwrap_err().message, "cannot write a.raw: No such file or directory; check the path");
        let denied = Err::<(), _>(io::Error::from_raw_os_error(13)).context("cannot open a.raw").unwrap_err();
        assert_eq!(denied.message, "cannot open a.raw: Permission denied; check its owner and mode, or run as root");
        let begun =
            Err::<(), _>(Error::failed("it is damaged").next(Acquisition::BeginAgain)).context("a.raw").unwrap_err();
        assert_eq!(begun.message, "a.raw: it is damaged; begin again with --restart");
        let other = Err::<(), _>("out of order").context("cannot open a.raw").unwrap_err();
        assert_eq!(other.message, "cannot open a.raw: out of order");
    }
}
