//! Client and server against each other, against other implementations, and against peers that break the protocol.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod both;
mod fairness;
mod handshake;
mod packed;
mod peers;
mod recovery;
mod replies;
mod server;
mod support;
mod tls;
