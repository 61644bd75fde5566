//! A far end that cooperates: it reports when packets arrived, sends trains itself, and sends and receives bulk data
//! over TCP.
//!
//! A node serves it in its control API, an agent on the port after its NBD port. The protocol is HTTP and JSON:
//! docs/reference/control-api.md lists the requests, and [`routes`] has the paths.
//!
//! Every error is a fitting status with [`ErrorBody`](cheetah_control::api::ErrorBody).
//!
//! # What strangers can do with it
//!
//! It listens at the address of its node or agent, and any client that reaches it may use it. Therefore:
//!
//! * It sends packets only to the source address of the caller's TCP connection, which cannot be forged without seeing
//!   the answers. It sends to ports from 1024 on, and stops at the first that is refused there, or when the caller
//!   hangs up.
//! * A page in a browser cannot use it: each request with an effect has the type JSON, or is neither GET nor POST. A
//!   browser sends a preflight request before either, and gets no answer.
//! * It receives packets only at the address that was called, from that caller only, each with a random token.
//! * [`limits`] bounds everything: simultaneous requests, packets, bytes, seconds and packets a second.
//! * It reads and writes no file, and has no access to the rest of its process.
//! * The caller's address comes from the server that accepted the connection ([`Caller`]), never from the request.
//!
//! [`client`] is the other side of the protocol; [`measure`] computes figures from the answers.

pub mod api;
mod bulk;
pub mod client;
mod dispersion;
pub mod limits;
pub mod measure;
mod rate;
mod receive;
mod responder;
pub mod routes;
mod stamped;
pub mod tag;
pub mod train;
mod trains;

pub use api::{Arrivals, BulkReceived, FarInfo, FarLimits, ReceiveRequest, Receiving, SendReply, SendRequest, Token};
pub use client::{FarClient, FarError};
pub use rate::Rate;
pub use responder::{Caller, FarConfig, router};
