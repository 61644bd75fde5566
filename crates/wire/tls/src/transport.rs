//! The protection of a connection.

use std::fmt;

use crate::identity::Identity;

/// The protection of the connections to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// None: neither encrypted nor authenticated.
    Clear,
    /// A Unix socket, protected by the operating system.
    Unix,
    /// TLS 1.3, both sides verified.
    Tls {
        /// The cipher, such as `AES-128-GCM`.
        cipher: &'static str,
        /// The server; `None` for servers of other makers, of which the name was verified.
        peer: Option<Box<Identity>>,
    },
}

impl Transport {
    /// The protection without the server's identity, such as `TLS 1.3, AES-128-GCM`.
    pub fn protection(&self) -> String {
        match self {
            Self::Tls { cipher, .. } => format!("TLS 1.3, {cipher}"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear => f.write_str("in clear: neither encrypted nor authenticated"),
            Self::Unix => f.write_str("a Unix socket on this machine"),
            Self::Tls { peer: None, .. } => write!(f, "{}, server verified by its name", self.protection()),
            Self::Tls { peer: Some(peer), .. } => {
                write!(f, "{}, with {peer} of room {}, key SHA-256 {}", self.protection(), peer.room, peer.key)
            }
        }
    }
}
