//! Errors.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::identity::{Identity, RoomId};
use crate::role::Roles;

/// Why a peer refuses this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This machine's certificate is revoked.
    #[error("the certificate of this machine is revoked")]
    Revoked,
    /// This machine's certificate is of another room.
    #[error("the peer does not accept this machine's certificate: it is of another room")]
    OtherRoom,
    /// This machine sent no certificate.
    #[error("the peer is in a room and asks for a certificate")]
    NoCertificate,
    /// Another defect of this machine's certificate.
    #[error("the peer does not accept this machine's certificate")]
    BadCertificate,
}

impl Refusal {
    /// The refusal that an alert of TLS stands for (RFC 8446, section 6.2).
    pub(crate) fn of_alert(alert: u8) -> Option<Self> {
        match alert {
            44 => Some(Self::Revoked),
            48 => Some(Self::OtherRoom),
            116 => Some(Self::NoCertificate),
            42 | 43 | 45 | 46 | 49 => Some(Self::BadCertificate),
            _ => None,
        }
    }

    /// The errno that stands for it.
    pub fn errno(self) -> i32 {
        let errno = match self {
            Self::Revoked => Errno::KEYREVOKED,
            Self::OtherRoom => Errno::KEYREJECTED,
            Self::NoCertificate => Errno::NOKEY,
            Self::BadCertificate => Errno::ACCESS,
        };
        errno.raw_os_error()
    }

    /// The refusal that made an operation on a connection fail, if a refusal did.
    pub fn of_error(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Why a credential cannot be used, or a peer is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Bytes from a file or a peer are malformed.
    #[error("{0}")]
    Malformed(&'static str),
    /// The certificate is not one of a room's member.
    #[error("the certificate names no room and no role")]
    NotOfARoom,
    /// The peer belongs to another room.
    #[error("{0} belongs to room {1}, not to ours")]
    OtherRoom(Box<Identity>, RoomId),
    /// The peer does not have the expected role.
    #[error("{0} is not the {1} that was expected")]
    OtherRole(Box<Identity>, Roles),
    /// The peer's key differs from the pinned one.
    #[error("{0} is another machine: its key is {key}, not the one known for this address", key = .0.key)]
    OtherKey(Box<Identity>),
    /// The peer's certificate is revoked.
    #[error("the certificate of {0} is revoked")]
    Revoked(Box<Identity>),
    /// A list of revoked certificates is older than the known one, or lacks certificates on it.
    #[error("the list of revoked certificates is older than the one in use, or lacks certificates on that list")]
    OldRevocations,
    /// The enrolment server is another room's.
    #[error("another room answers: none of its certificates has the key that the invitation names")]
    OtherAuthority,
    /// A server that is verified by name has a revoked certificate.
    #[error("the server's certificate is revoked")]
    ForeignRevoked,
    /// A server without a room would be reachable from other machines.
    #[error("other machines can reach {0}, and without a room they could read the traffic and impersonate peers")]
    Exposed(SocketAddr),
    /// The peer sent no certificate.
    #[error("the peer sent no certificate")]
    NoCertificate,
    /// The TLS library refuses.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

impl TlsError {
    /// The same, as an error of the TLS library, whose callbacks return its own errors.
    pub(crate) fn into_rustls(self) -> rustls::Error {
        let other = match self {
            Self::Rustls(error) => return error,
            Self::Revoked(_) | Self::ForeignRevoked => return rustls::CertificateError::Revoked.into(),
            Self::Malformed(_) => return rustls::CertificateError::BadEncoding.into(),
            other => other,
        };
        rustls::CertificateError::Other(rustls::OtherError(std::sync::Arc::new(other))).into()
    }
}
