//! The errors of keys and records.

use std::io::ErrorKind;

use cheetah_error::Next;
use cheetah_error::next::Seal;

use crate::variables::{IDENTITY_VARIABLE, PASSPHRASE_VARIABLE};

/// A reason why a sealed drive cannot be opened, as a clause that continues a sentence about the drive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The bytes are not of this format, or are cut off.
    #[error("{0}")]
    Malformed(&'static str),
    /// The bytes were made with another key, or were changed since.
    #[error("{0}")]
    NotAuthentic(&'static str),
    /// The record lacks a writer that is known: it is that of an earlier time.
    #[error("its seal record is older than the drive: put the newest .seal file beside the drive file")]
    OldRecord,
    /// Another process writes to the drive now.
    #[error("another process has stored its seal record, and has taken the drive over; close it and open it again")]
    TakenOver,
    /// No identity or passphrase opens the drive's key.
    #[error("{0}")]
    NoKey(String),
    /// No identity was given.
    #[error("it is sealed")]
    NoIdentity,
    /// None of the identities that were given opens the drive's key.
    #[error("it is sealed, and not for the identity or passphrase that was given")]
    OtherIdentity,
    /// A text is no recipient.
    #[error("'{0}' is no recipient")]
    NoRecipient(String),
    /// A file is not one of identities.
    #[error("{0}")]
    NoIdentityFile(String),
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
    /// Whether a key is wrong or missing, rather than the drive.
    pub const fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::NoKey(_) | Self::NoIdentity | Self::OtherIdentity | Self::NoRecipient(_) | Self::NoIdentityFile(_)
        )
    }

    /// The next step, if there is one.
    pub fn next(&self) -> Option<Next> {
        let next = match self {
            Self::NoIdentity => Seal::GiveKey {
                identity_variable: IDENTITY_VARIABLE.into(),
                passphrase_variable: PASSPHRASE_VARIABLE.into(),
            },
            Self::OtherIdentity => Seal::AskToShare,
            Self::NoRecipient(_) => Seal::PrintRecipient,
            Self::NoIdentityFile(_) => Seal::MakeIdentity,
            _ => return None,
        };
        Some(next.into())
    }

    /// Wraps an error of the operating system.
    pub fn system(doing: &str, error: &std::io::Error) -> Self {
        let text = format!("{doing}: {}", cheetah_device::os_error::describe(error));
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Self::NoSpace(text),
            _ => Self::System(text),
        }
    }
}
