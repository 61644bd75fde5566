//! The errors of devices.

use std::sync::Arc;

use crate::ByteRange;

pub use cheetah_kit::errno::{
    EACCES, ECONNREFUSED, EHOSTUNREACH, EINVAL, EIO, EKEYREJECTED, EKEYREVOKED, ENOENT, ENOKEY, ENONET, ENOSPC,
    EOPNOTSUPP, EPERM, EPROTONOSUPPORT, EROFS, ESTALE, ETIMEDOUT,
};

/// The result of an operation on a device.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an operation on a device failed.
///
/// Each variant maps to one errno ([`Error::errno`]), which NBD and FUSE clients get; the text goes to the log.
/// Cloneable, because several readers may wait for one fetch that fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The requested bytes are not within the device.
    #[error("range {range} is outside the device of {size} bytes")]
    OutOfBounds {
        /// The requested range.
        range: ByteRange,
        /// The size of the device.
        size: u64,
    },
    /// The device, or this opening of it, cannot be written.
    #[error("the device is read-only")]
    ReadOnly,
    /// No memory or disk space is left for the data.
    #[error("no space: {0}")]
    NoSpace(Arc<str>),
    /// Another writer holds the lease, or ours was taken away.
    #[error("write refused: {0}")]
    Fenced(Arc<str>),
    /// The node or source that holds the bytes did not answer in time, refuses, is gone, or came back empty. Which of
    /// these it is, the reason says.
    #[error("{device}: {range} not available: {why}")]
    Lost {
        /// The device, as the user named it.
        device: Arc<str>,
        /// The range on that device.
        range: ByteRange,
        /// The reason.
        why: Arc<str>,
    },
    /// The digest of the bytes is not that of the bytes written.
    #[error("{device}: {range} is corrupt: its digest does not match")]
    Corrupt {
        /// The device, as the user named it.
        device: Arc<str>,
        /// The range on that device.
        range: ByteRange,
    },
    /// The evidence itself could not be read here: bad sectors, or ranges an image records as unreadable. A retry is of
    /// little use; the rest of the device may be readable.
    #[error("{device}: {range} is unreadable: {why}")]
    Unreadable {
        /// The device, as the user named it.
        device: Arc<str>,
        /// The range on that device.
        range: ByteRange,
        /// The reason.
        why: Arc<str>,
    },
    /// The bytes are not handed out, although nothing failed to be read.
    #[error("{device}: {range} is unreadable: {reason}")]
    Withheld {
        /// The device, as the user named it.
        device: Arc<str>,
        /// The range on that device.
        range: ByteRange,
        /// The reason.
        reason: Withheld,
    },
    /// The request is invalid for this device.
    #[error("{0}")]
    Invalid(Arc<str>),
    /// The device cannot do this.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The operating system or a peer reported an error.
    #[error("{context}: {why}")]
    Io {
        /// The operation, and its object.
        context: Arc<str>,
        /// The error's text.
        why: Arc<str>,
        /// Its errno (Linux numbering).
        errno: i32,
    },
}

/// Why a device does not hand out bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    /// More of them was lost than the layout of the drive survives.
    #[error("more was lost here than the layout survives")]
    BeyondLayout,
    /// They were never read from the source; the text says when they were not.
    #[error("not read {0}")]
    NotRead(&'static str),
    /// The source could not read them; the text says when.
    #[error("unreadable {0}")]
    WasUnreadable(&'static str),
    /// Their writer has not closed the sealed drive.
    #[error("it is newer than the last root, and its writer has not closed the drive, so it is unverified")]
    Unverified,
    /// Their seal is not that of what was written.
    #[error(
        "its seal is broken: a node altered, moved, zeroed or lost it, or a write was cut off, and no other node has it right"
    )]
    NotAuthentic,
    /// Their seal is that of a writer that is not known.
    #[error(
        "its seal is that of a writer that the seal record does not list: a node returned an older version or altered it, or \
         the record is older than the drive"
    )]
    UnknownWriter,
    /// They are authentic, and were overwritten since.
    #[error("it is an older version of this unit: a node returned what was overwritten since")]
    OldVersion,
    /// They are authentic, and newer than what is known of the drive.
    #[error("it is newer than this drive's seal record: use the newest .seal file of the drive")]
    NewerThanRecord,
}

impl Error {
    /// Wraps an operating-system error with the operation that failed.
    pub fn io(context: impl Into<Arc<str>>, error: &std::io::Error) -> Self {
        Self::Io {
            context: context.into(),
            why: crate::os_error::describe(error).into(),
            errno: cheetah_kit::errno::of(error).unwrap_or(EIO),
        }
    }

    /// Whether the evidence is unreadable in this place only: a bad sector, rather than a source that is gone.
    pub fn is_bad_sector(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Withheld { .. } | Self::Io { errno: EIO, .. })
    }

    /// Returns the errno (Linux numbering) for clients of the device.
    pub fn errno(&self) -> i32 {
        match self {
            Self::OutOfBounds { .. } | Self::Invalid(_) => EINVAL,
            Self::ReadOnly => EROFS,
            Self::NoSpace(_) => ENOSPC,
            Self::Fenced(_) => EPERM,
            Self::Lost { .. } | Self::Corrupt { .. } | Self::Unreadable { .. } | Self::Withheld { .. } => EIO,
            Self::Unsupported(_) => EOPNOTSUPP,
            Self::Io { errno, .. } => *errno,
        }
    }
}
