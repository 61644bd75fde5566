//! NBD: codec, client and server.
//!
//! Every hop between machines speaks NBD. [`proto`] is the codec and [`handshake`] the negotiation; neither does
//! any I/O, they turn bytes into decisions and back. [`client`] makes a device of an export elsewhere.

#![forbid(unsafe_code)]

pub mod answering;
pub mod busy;
pub mod client;
mod greeting;
pub mod handshake;
pub mod inbox;
mod os;
pub mod packing;
pub mod proto;
pub mod server;
mod starttls;
mod tune;
pub mod uri;

pub use inbox::Inbox;
pub use packing::{Method, Packing};
pub use uri::{Address, NbdUri, Security};
