//! The control API: plain HTTP and JSON, so that `curl` is a client.

pub mod api;
pub mod client;
mod host;
pub mod http;
mod metrics;
pub(crate) mod server;

pub use client::{ControlClient, ControlError};
