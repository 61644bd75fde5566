//! A far end that cooperates: it reports when packets arrived, sends trains itself, and sends and receives bulk data over TCP.
//!
//! A node has it in its control API, an agent on the port after its NBD port. It is HTTP and JSON:
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/probe` | | [`About`] |
//! | `POST /v1/probe/receive` | [`ReceiveRequest`] | 201 [`Receiving`]: a UDP port that waits for a train; 429 too many do |
//! | `GET /v1/probe/receive/TOKEN` | | [`Arrivals`]; 404 none for this caller |
//! | `DELETE /v1/probe/receive/TOKEN` | | 204 |
//! | `POST /v1/probe/send` | [`SendRequest`] | [`SendReply`], when the train has left; 409 it could not be sent; 429 not now |
//! | `GET /v1/probe/bulk?bytes=N` | none, but said to be JSON | so many random bytes, cut after a while; 429 not now |
//! | `PUT /v1/probe/bulk` | any bytes | [`BulkReceived`]; 429 not now |
//!
//! Every error is a fitting status with [`ErrorBody`].
//!
//! # What strangers can do with it
//!
//! It listens where its node or agent does, and any client that reaches it may use it. So:
//!
//! * It sends packets only to the address the caller's own TCP connection comes from, which nobody can forge who does not
//!   see the answers; to ports from 1024 on; and stops at the first that is refused there, or when the caller hangs up.
//! * A page in a browser cannot make it do anything: what does is said to be JSON, or is no GET and no POST, and both the
//!   browser asks about first, and is not answered.
//! * It waits for packets only at the address that was called, of that caller only, with a random token in each.
//! * [`limits`] bounds everything: how many at once, packets, bytes, seconds and packets a second.
//! * It reads and writes no file, and knows nothing of what else its process does.
//! * It is told who calls by the server that accepted the connection ([`Caller`]), never by the request.
//!
//! The other side is [`client`]; [`measure`] computes figures from its answers.

pub mod api;
mod bulk;
pub mod client;
mod dispersion;
pub mod limits;
pub mod measure;
mod rate;
mod receive;
mod responder;
mod stamped;
pub mod tag;
pub mod train;
mod trains;

pub use api::{
    About, Arrivals, BulkReceived, ErrorBody, FarLimits, ReceiveRequest, Receiving, SendReply, SendRequest, Token,
};
pub use client::{FarClient, FarError};
pub use rate::Rate;
pub use responder::{Caller, FarConfig, router};
