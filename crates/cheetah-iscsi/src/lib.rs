//! An iSCSI initiator that only reads.

#![forbid(unsafe_code)]

mod initiator;
mod uri;

pub use initiator::{Initiator, Inquiry, IscsiConfig};
pub use uri::{BadUri, Credentials, IscsiUri, LUN_MAX, NAME_LEN_MAX, PORT, Password, Unit};
