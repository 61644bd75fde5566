//! An iSCSI initiator that only reads: a logical unit of a target as a [`Device`](cheetah_device::Device).
//!
//! There is no code in it that could write: the only commands that can be said are those of [`scsi::Cdb`], and no
//! request ever announces data to be written.
//!
//! From the bottom up: [`pdu`] puts headers, digests and texts on the wire; [`login`] and [`session`] are the
//! initiator's side of the protocol (RFC 7143) as state machines that do no I/O; `link` moves bytes between them and a
//! socket; `inquiry` asks the logical unit what it is; `keeper` is the task that keeps the connection and makes a new
//! one when it is lost; [`Initiator`] cuts reads into commands, and judges what they return.

#![forbid(unsafe_code)]

mod initiator;
mod inquiry;
mod keeper;
mod link;
pub mod login;
pub mod pdu;
pub mod scsi;
pub mod session;
mod uri;

pub use initiator::{Initiator, IscsiConfig};
pub use inquiry::Inquiry;
pub use uri::{BadUri, Credentials, IscsiUri, LUN_MAX, NAME_LEN_MAX, PORT, Password, Unit};
