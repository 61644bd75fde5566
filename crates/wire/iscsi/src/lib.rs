//! A read-only iSCSI initiator: a logical unit of a target as a [`Device`](cheetah_device::Device).
//!
//! It contains no code that writes: [`scsi::Cdb`] has only commands that read, and no request announces outgoing data.
//!
//! From the bottom up: [`pdu`] encodes and decodes headers, digests and texts; [`login`] and [`session`] are the
//! initiator's side of the protocol (RFC 7143) as state machines without I/O; `connection` moves bytes between them and
//! a socket; `inquiry` identifies the logical unit; `connection_task` owns the connection and reconnects;
//! [`Initiator`] splits reads into commands and interprets their outcomes.

#![forbid(unsafe_code)]

mod connection;
mod connection_task;
mod initiator;
mod inquiry;
pub mod login;
mod options;
pub mod pdu;
pub mod scsi;
pub mod session;
#[cfg(feature = "testing")]
pub mod testing;
mod uri;

pub use initiator::{Initiator, IscsiConfig};
pub use inquiry::Inquiry;
pub use options::{COMMANDS_MAX, LoginKeys, SESSIONS_MAX, SessionOptions};
pub use uri::{BadUri, Credentials, IscsiUri, LUN_MAX, NAME_LEN_MAX, PORT, Password, Unit};
