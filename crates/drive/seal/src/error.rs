//! The errors of keys and records.

use std::io::ErrorKind;

/// A reason why a sealed drive cannot be opened, as a clause that continues a sentence about the drive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The bytes are not of this format, or are cut off.
    #[error("{0}")]
    Malformed(&'static str),
    /// The bytes were made with another key, or were changed since.
    #[error("{0}")]
    NotAuthentic(&'static str),
    /// No identity or passphrase opens the drive's key.
    #[error("{0}")]
    NoKey(String),
    /// A limit of the format is reached.
    #[error("{0}")]
    Exhausted(&'static str),
    /// There is no space to store the record.
    #[error("{0}")]
    NoSpace(String),
    /// The operating system reported an error.
    #[error("{0}")]
    System(String),
}

impl SealError {
    /// Wraps an error of the operating system.
    pub fn system(doing: &str, error: &std::io::Error) -> Self {
        let text = format!("{doing}: {}", cheetah_device::os_error::describe(error));
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Self::NoSpace(text),
            _ => Self::System(text),
        }
    }
}
