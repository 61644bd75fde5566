//! What can go wrong when a device is read or written.

use std::sync::Arc;

use crate::ByteRange;

/// The result of an operation on a device.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a device failed.
///
/// Each variant maps to one errno ([`Error::errno`]), which is what NBD and FUSE clients get to see; the text
/// goes to the log. Cloneable, because one failed fetch may have several readers waiting on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller asked for bytes the device does not have.
    #[error("range {range} is outside the device of {size} bytes")]
    OutOfBounds {
        /// What was asked for.
        range: ByteRange,
        /// Bytes there are.
        size: u64,
    },
    /// The device, or this opening of it, cannot be written.
    #[error("the device is read-only")]
    ReadOnly,
    /// There is no memory or disk left to hold what was written.
    #[error("no space: {0}")]
    NoSpace(Arc<str>),
    /// Another writer holds the lease, or ours was taken away.
    #[error("write refused: {0}")]
    Fenced(Arc<str>),
    /// Whoever holds the bytes did not answer in time, is gone, or came back empty.
    #[error("{device}: {range} lost: {why}")]
    Lost {
        /// Which device, as the user named it.
        device: Arc<str>,
        /// Range on that device.
        range: ByteRange,
        /// What happened.
        why: Arc<str>,
    },
    /// The bytes are there, but their digest says they are not the ones that were written.
    #[error("{device}: {range} is corrupt: its digest does not match")]
    Corrupt {
        /// Which device, as the user named it.
        device: Arc<str>,
        /// Range on that device.
        range: ByteRange,
    },
    /// The evidence itself could not be read here: bad sectors, or ranges an image records as unreadable. Asking
    /// again is of little use; the rest of the device may well be readable.
    #[error("{device}: {range} is unreadable: {why}")]
    Unreadable {
        /// Which device, as the user named it.
        device: Arc<str>,
        /// Range on that device.
        range: ByteRange,
        /// What happened.
        why: Arc<str>,
    },
    /// The request makes no sense to this device.
    #[error("{0}")]
    Invalid(Arc<str>),
    /// The device cannot do this.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The operating system or a peer reported an error.
    #[error("{context}: {why}")]
    Io {
        /// What was being done, to what.
        context: Arc<str>,
        /// The error's text.
        why: Arc<str>,
        /// Its errno.
        errno: i32,
    },
}

impl Error {
    /// Wraps an operating-system error with what was being done.
    pub fn io(context: impl Into<Arc<str>>, error: &std::io::Error) -> Self {
        Self::Io { context: context.into(), why: error.to_string().into(), errno: error.raw_os_error().unwrap_or(EIO) }
    }

    /// Whether the evidence itself cannot be read just here, while the rest of it may well be: a bad sector, rather
    /// than a source that is gone.
    pub fn is_bad_sector(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Io { errno: EIO, .. })
    }

    /// The errno (Linux numbering) a client of the device is told.
    pub fn errno(&self) -> i32 {
        match self {
            Self::OutOfBounds { .. } | Self::Invalid(_) => EINVAL,
            Self::ReadOnly => EROFS,
            Self::NoSpace(_) => ENOSPC,
            Self::Fenced(_) => EPERM,
            Self::Lost { .. } | Self::Corrupt { .. } | Self::Unreadable { .. } => EIO,
            Self::Unsupported(_) => EOPNOTSUPP,
            Self::Io { errno, .. } => *errno,
        }
    }
}

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// Input/output error.
pub const EIO: i32 = 5;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Read-only file system.
pub const EROFS: i32 = 30;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
