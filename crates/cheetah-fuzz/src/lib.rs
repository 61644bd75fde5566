//! Fuzz targets: one function per parser of untrusted bytes, and one for the erasure code.
//!
//! A target takes any bytes and panics if the tested code panics, breaks an invariant or exceeds its limits. `fuzz/`
//! runs the targets under libFuzzer (`make fuzz`); `tests/random_input.rs` runs each on random input as part of the
//! test suite.

#![forbid(unsafe_code)]
// Targets fail by panicking; their inputs are at most some MiB.
#![allow(clippy::unwrap_used)]

pub mod aff4;
pub mod certificate;
pub mod client_handshake;
pub mod client_reply;
pub mod compressed;
pub mod control;
pub mod custody;
pub mod ewf;
pub mod iscsi;
pub mod parity;
pub mod partition_table;
pub mod probe_reply;
pub mod record;
pub mod request;
pub mod room;
pub mod seal;
pub mod server_handshake;
pub mod split;
pub mod store_answer;
pub mod survey;
pub mod tls_handshake;
pub mod upload_record;

/// A fuzz target: takes any input, and panics on a defect.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 22] = [
    ("aff4", aff4::run),
    ("certificate", certificate::run),
    ("client_handshake", client_handshake::run),
    ("client_reply", client_reply::run),
    ("compressed", compressed::run),
    ("control", control::run),
    ("custody", custody::run),
    ("ewf", ewf::run),
    ("iscsi", iscsi::run),
    ("parity", parity::run),
    ("partition_table", partition_table::run),
    ("probe_reply", probe_reply::run),
    ("record", record::run),
    ("request", request::run),
    ("room", room::run),
    ("seal", seal::run),
    ("server_handshake", server_handshake::run),
    ("split", split::run),
    ("store_answer", store_answer::run),
    ("survey", survey::run),
    ("tls_handshake", tls_handshake::run),
    ("upload_record", upload_record::run),
];
