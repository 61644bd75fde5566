//! The errors that a user sees: one sentence with the next step, and an exit code.

#![forbid(unsafe_code)]

mod fact;

use cheetah_device::Error as DeviceError;
use cheetah_kit::random::NoRandomNumbers;

pub use fact::Fact;

/// The result of an operation that a user asked for.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is invalid, and repeating it does not help (exit code 2).
    #[error("{0}")]
    Misuse(String),
    /// The operation failed (exit code 1).
    #[error("{0}")]
    Failed(String),
    /// The evidence is changed, unreadable or incomplete (exit code 3).
    #[error("{0}")]
    Evidence(String),
    /// A node cannot be used (exit code 1).
    #[error("{why}")]
    Node {
        /// What is known about it.
        fact: Fact,
        /// The sentence.
        why: String,
    },
    /// A device reported an error (exit code 1).
    #[error("{doing}: {error}")]
    Device {
        /// The operation.
        doing: String,
        /// The device's error.
        error: DeviceError,
    },
}

impl Error {
    /// Returns the exit code of the command line: 1 failed, 2 misused, 3 evidence problem.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Node { .. } | Self::Device { .. } => 1,
            Self::Misuse(_) => 2,
            Self::Evidence(_) => 3,
        }
    }

    /// Returns an [`Error::Failed`].
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self::Failed(sentence.into())
    }

    /// Returns an [`Error::Misuse`].
    pub fn misuse(sentence: impl Into<String>) -> Self {
        Self::Misuse(sentence.into())
    }

    /// Returns an [`Error::Node`].
    pub fn node(fact: Fact, sentence: impl Into<String>) -> Self {
        Self::Node { fact, why: sentence.into() }
    }

    /// The fact about a node for which the operation failed, if that is why.
    pub const fn fact(&self) -> Option<Fact> {
        match self {
            Self::Node { fact, .. } => Some(*fact),
            _ => None,
        }
    }

    /// Wraps an operating-system error with the operation that failed.
    pub fn io(doing: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::Failed(format!("{doing}: {}", cheetah_device::os_error::describe(error)))
    }

    /// Wraps a device's error with the operation that failed.
    pub fn device(doing: impl Into<String>) -> impl FnOnce(DeviceError) -> Self {
        let doing = doing.into();
        move |error| Self::Device { doing, error }
    }
}

impl From<NoRandomNumbers> for Error {
    fn from(error: NoRandomNumbers) -> Self {
        Self::failed(error.to_string())
    }
}

/// `name` or `name and name` or `name, name and name`.
pub fn list<T: AsRef<str>>(names: &[T]) -> String {
    match names {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", first.join(", "), last.as_ref())
        }
    }
}
