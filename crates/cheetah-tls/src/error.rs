//! Errors.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::identity::{Identity, RoomId};
use crate::role::Roles;

/// The sentence for a member whose certificate is revoked.
pub const REVOKED: &str = "the certificate of this machine is revoked; to join again, it needs a new invitation (cheetah room \
                           invite)";

/// The sentence for an alert by which a peer refuses this side's certificate (RFC 8446, section 6.2).
pub(crate) fn refusal(alert: u8) -> Option<&'static str> {
    match alert {
        44 => Some(REVOKED),
        48 => Some(
            "the peer does not accept this machine's certificate: it is of another room; name the room with --room",
        ),
        116 => Some("the peer is in a room and asks for a certificate; name the room with --room"),
        42 | 43 | 45 | 46 | 49 => Some("the peer does not accept this machine's certificate"),
        _ => None,
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
        error: std::io::Error,
    },
    /// Bytes from a file or a peer are not what they should be.
    #[error("{0}")]
    Malformed(&'static str),
    /// The certificate is not one of a room's member.
    #[error("the certificate names no room and no role")]
    NotOfARoom,
    /// The peer belongs to another room.
    #[error("{0} belongs to room {1}, not to ours")]
    OtherRoom(Box<Identity>, RoomId),
    /// The peer's role is another than is needed.
    #[error("{0} is not the {1} that was expected")]
    OtherRole(Box<Identity>, Roles),
    /// The peer's key is another than the pinned one.
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
    /// A server of others has a revoked certificate.
    #[error("the server's certificate is revoked")]
    ForeignRevoked,
    /// A server would be exposed.
    #[error(
        "other machines can reach {0}, and without a room they could read along and pose as others; say which room with \
         --room, or, on a network you trust, --insecure"
    )]
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
