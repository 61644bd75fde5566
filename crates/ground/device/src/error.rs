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
        /// Its errno.
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
/// Required key not available: the server accepts members of its room only, and no room is named.
pub const ENOKEY: i32 = 126;
/// Key has been revoked: the server refuses the certificate of this machine.
pub const EKEYREVOKED: i32 = 128;
/// Key was rejected by service: the server is in another room than this machine.
pub const EKEYREJECTED: i32 = 129;
/// Machine is not on the network: this machine has no credential of the server's room.
pub const ENONET: i32 = 64;
/// Protocol not supported: the server does not encrypt, and has to.
pub const EPROTONOSUPPORT: i32 = 93;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Read-only file system.
pub const EROFS: i32 = 30;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
