//! The control API of a node: HTTP and JSON, so that `curl` is a client; HTTPS between the members of a room.
//!
//! [`routes`] has the paths, [`api`] the types, and [`client`] calls a node. [`receipt`] has the node's statements that it
//! wiped memory. [`http`] serves a router within limits; the node's own is in `cheetah-node`.

#![forbid(unsafe_code)]

pub mod api;
pub mod client;
mod host;
pub mod http;
pub mod mdns;
pub mod receipt;
pub mod revoked;
pub mod routes;

pub use client::{ControlClient, ControlError};
