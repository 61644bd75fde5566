//! The control API of a node: HTTP and JSON, so that `curl` is a client; HTTPS between the members of a room.
//!
//! [`routes`] has the paths, [`api`] the types, and [`client`] calls a node. [`receipt`] has the node's statements that it
//! wiped memory, and [`jobs`] the work that it does on its own content. [`http`] serves a router within limits; the node's own is in `cheetah-node`.

#![forbid(unsafe_code)]

pub mod api;
pub mod client;
mod host;
pub mod http;
pub mod jobs;
pub mod mdns;
pub mod receipt;
pub mod revoked;
pub mod routes;

use cheetah_error::Error;
use cheetah_error::next::Room;
use cheetah_tls::TlsError;

pub use client::{ControlClient, ControlError};

/// The error for a server that other machines could reach without encryption.
pub fn exposed(error: TlsError) -> Error {
    let next = matches!(error, TlsError::Exposed(_)).then(|| Room::SayRoomOrInsecure.into());
    Error::misuse(error.to_string()).advise(next).because(error)
}
