//! How a command fails: one sentence, and an exit code that scripts can rely on.

use std::fmt;
use std::process::ExitCode;

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// What the process exits with. 0 is a job done; clap itself exits with 2 for a command line it cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The job could not be done.
    Failed = 1,
    /// The command line asks for something that makes no sense.
    Misused = 2,
    /// The evidence is not what it should be: a hash differs, a range cannot be read.
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
    /// What to exit with.
    pub code: Code,
    /// What, where, and what to do next.
    pub message: String,
    /// Whether a child process has shown it on stderr already.
    pub shown: bool,
}

impl Failure {
    /// The job could not be done.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { code: Code::Failed, message: message.to_string(), shown: false }
    }

    /// The command line makes no sense.
    pub fn misused(message: impl fmt::Display) -> Self {
        Self { code: Code::Misused, message: message.to_string(), shown: false }
    }

    /// The evidence is not what it should be.
    pub fn evidence(message: impl fmt::Display) -> Self {
        Self { code: Code::Evidence, message: message.to_string(), shown: false }
    }

    /// The same failure, shown on stderr by a child process already.
    pub fn already_shown(self) -> Self {
        Self { shown: true, ..self }
    }

    /// The same failure, with what was being done put before it.
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

/// Turns any error into a [`Failure`] that says what was being done.
pub trait Context<T> {
    /// `what` reads as the beginning of the sentence: `cannot write case42.raw`.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::failed(format!("{what}: {error}")))
    }
}

impl From<cheetah_drive::Error> for Failure {
    fn from(error: cheetah_drive::Error) -> Self {
        match error.exit_code() {
            2 => Self::misused(error),
            3 => Self::evidence(error),
            _ => Self::failed(error),
        }
    }
}
