//! The errors of devices.

use std::sync::Arc;

use crate::ByteRange;

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
        /// Its errno.
        errno: i32,
    },
}

impl Error {
    /// Wraps an operating-system error with the operation that failed.
    pub fn io(context: impl Into<Arc<str>>, error: &std::io::Error) -> Self {
        Self::Io {
            context: context.into(),
            why: crate::os_error::describe(error).into(),
            errno: error.raw_os_error().unwrap_or(EIO),
        }
    }

    /// Whether the evidence is unreadable in this place only: a bad sector, rather than a source that is gone.
    pub fn is_bad_sector(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Io { errno: EIO, .. })
    }

    /// Returns the errno (Linux numbering) for clients of the device.
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
/// No such file or directory; of an export: the server does not have it.
pub const ENOENT: i32 = 2;
/// Permission denied: the server does not let this client do this.
pub const EACCES: i32 = 13;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// No process listens at the address.
pub const ECONNREFUSED: i32 = 111;
/// The server accepted the connection, and does not answer.
pub const ETIMEDOUT: i32 = 110;
/// No route to the server's machine, or it does not answer at all.
pub const EHOSTUNREACH: i32 = 113;
/// Stale handle: the server is another instance than the one that held the content.
pub const ESTALE: i32 = 116;
/// Key has been revoked: the server refuses the certificate of this machine.
pub const EKEYREVOKED: i32 = 128;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Read-only file system.
pub const EROFS: i32 = 30;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
