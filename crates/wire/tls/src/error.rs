//! Errors.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use cheetah_kit::errno::{EACCES, EKEYREJECTED, EKEYREVOKED, ENOKEY};

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
        match self {
            Self::Revoked => EKEYREVOKED,
            Self::OtherRoom => EKEYREJECTED,
            Self::NoCertificate => ENOKEY,
            Self::BadCertificate => EACCES,
        }
    }

    /// The refusal that made an operation on a connection fail, if a refusal did.
    pub fn of_error(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Why a record is refused after the handshake, or none can be sent. The connection must not be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The two sides agreed on an algorithm that is not known here.
    #[error("TLS: an unknown cipher")]
    UnknownCipher,
    /// A key does not fit its algorithm.
    #[error("TLS: a key of the wrong length")]
    KeyLength,
    /// A nonce does not fit its algorithm.
    #[error("TLS: a nonce of the wrong length")]
    NonceLength,
    /// No number is left for another record.
    #[error("TLS: too many records under one key")]
    TooManyRecords,
    /// A record cannot be encrypted.
    #[error("TLS: encryption failed")]
    NotEncryptable,
    /// The bytes are no record.
    #[error("the peer does not speak TLS")]
    NotTls,
    /// A record has no body.
    #[error("TLS: an empty record")]
    Empty,
    /// A record is longer than the standard allows.
    #[error("TLS: a record is too long")]
    TooLong,
    /// A record is shorter than its header.
    #[error("TLS: a short record")]
    Short,
    /// A record is in clear, as anyone could send it.
    #[error("TLS: a record that is not encrypted")]
    Clear,
    /// A record is not the next one that the peer sent.
    #[error("TLS: a record was changed or is out of order")]
    Changed,
    /// A record has more content than the standard allows.
    #[error("TLS: a record has too much content")]
    TooMuchContent,
    /// A record has only padding.
    #[error("TLS: a record without a type")]
    NoType,
    /// The type of a record is not known.
    #[error("TLS: a record of an unknown type")]
    UnknownType,
    /// Another record is between the parts of a message.
    #[error("TLS: a message is interrupted")]
    Interrupted,
    /// Too many records in a row have no content.
    #[error("TLS: too many records without content")]
    Idle,
    /// A message has no bytes.
    #[error("TLS: a message after the handshake is empty")]
    EmptyMessage,
    /// A message is longer than any that is expected.
    #[error("TLS: a message after the handshake is too long")]
    LongMessage,
    /// A message belongs into a handshake, or is malformed.
    #[error("TLS: an unexpected message after the handshake")]
    UnexpectedMessage,
    /// The peer ends the connection for a reason that is no [`Refusal`].
    #[error("the peer ended the connection with TLS alert {0}")]
    Alert(u8),
    /// The peer ends the connection and does not say why.
    #[error("the peer ended the connection with a malformed TLS alert")]
    MalformedAlert,
}

impl RecordError {
    /// The error of a record that made an operation on a connection fail, if one did.
    pub fn of_error(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Why a credential cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCredential {
    /// It has no private key.
    #[error("the credential has no private key")]
    NoKey,
    /// It has more than one private key.
    #[error("the credential has several private keys")]
    SeveralKeys,
    /// It has no certificate of its own.
    #[error("the credential has no certificate beside its authority's")]
    NoCertificate,
    /// It has more certificates than a chain needs.
    #[error("the credential has too many certificates")]
    TooManyCertificates,
    /// It has no certificate of an authority.
    #[error("the credential lacks the self-signed certificate of its authority")]
    NoAuthority,
    /// Its authority did not sign its certificate.
    #[error("the credential's certificate is not signed by its authority")]
    NotSigned,
    /// Its certificate names another room than its authority's.
    #[error("the credential's certificate is for another room than its authority's")]
    OtherRoom,
    /// Its folder has a certificate without a key, or a key without a certificate.
    #[error("one of client-cert.pem and client-key.pem is missing")]
    HalfOfAPair,
    /// It is not PEM.
    #[error("the PEM is malformed")]
    NotPem,
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
    /// Other users may read a private key.
    #[error("{path}: other users may read this private key; run: chmod 600 {path}", path = .0.display())]
    Readable(PathBuf),
    /// The parts of a credential are missing, or do not belong together.
    #[error(transparent)]
    Credential(#[from] BadCredential),
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
    /// A list of revoked certificates is not signed by the room.
    #[error("the list of revoked certificates is not signed by the room")]
    ForeignRevocations,
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
