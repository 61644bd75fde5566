//! How a connection is protected.

use std::fmt;

use cheetah_tls::Identity;

/// How the connections to a server are protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Not at all.
    Clear,
    /// By the operating system: a Unix socket.
    Unix,
    /// TLS 1.3, both sides verified.
    Tls {
        /// Such as `AES-128-GCM`.
        cipher: &'static str,
        /// The server; `None` for servers of others, of which the name was verified.
        peer: Option<Box<Identity>>,
    },
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear => f.write_str("in clear: neither encrypted nor authenticated"),
            Self::Unix => f.write_str("a Unix socket on this machine"),
            Self::Tls { cipher, peer: None } => write!(f, "TLS 1.3, {cipher}, server verified by its name"),
            Self::Tls { cipher, peer: Some(peer) } => {
                write!(f, "TLS 1.3, {cipher}, with {peer} of room {}, key SHA-256 {}", peer.room, peer.key)
            }
        }
    }
}
