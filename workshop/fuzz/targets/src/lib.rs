//! Fuzz targets: one function per parser of untrusted bytes, and one for the erasure code.
//!
//! A target takes any bytes and panics if the tested code panics, breaks an invariant or exceeds its limits.
//! [`within_budget`] also fails if it takes too much memory. `workshop/fuzz/` runs the targets under libFuzzer (`make fuzz`);
//! `tests/random_input.rs` runs each on random input as part of the test suite.

#![forbid(unsafe_code)]
// Targets fail by panicking; their inputs are at most some MiB.
#![allow(clippy::unwrap_used)]

pub mod aff4;
pub mod apple;
pub mod arrays;
pub mod carve;
pub mod certificate;
pub mod client_handshake;
pub mod client_reply;
pub mod compressed;
pub mod control;
pub mod custody;
pub mod ewf;
pub mod formats;
pub mod gps;
pub mod iscsi;
pub mod journal;
pub mod known_set;
pub mod logical_volumes;
pub mod parity;
pub mod partition_table;
pub mod patterns;
pub mod probe_reply;
pub mod record;
pub mod request;
pub mod room;
pub mod seal;
pub mod server_handshake;
pub mod shadow_copies;
pub mod split;
pub mod store_answer;
pub mod survey;
pub mod tls_handshake;
pub mod unlock_header;
pub mod upload_record;

use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The maximum number of bytes that any parser of untrusted bytes may have allocated at any time.
pub const HEAP_BYTES_MAX: usize = 64 << 20;

/// Runs a target on an input. Panics if the process, of which nothing else may run, allocates too much meanwhile.
pub fn within_budget(target: Target, input: &[u8]) {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    target(input);
    let used = HEAP.peak_usage().saturating_sub(before);
    assert!(used <= HEAP_BYTES_MAX, "{used} bytes of memory for an input of {} bytes", input.len());
}

/// Returns `bytes`, which are valid, with edits: every three bytes of `edits` are an offset and the new byte. So the
/// fuzzer gets past the checks at the start of a parser.
pub(crate) fn edited(bytes: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut edited = bytes.to_vec();
    for edit in edits.chunks_exact(3).take(64) {
        let place = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % edited.len();
        edited[place] = edit[2];
    }
    edited
}

/// A fuzz target: takes any input, and panics on a defect.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 33] = [
    ("aff4", aff4::run),
    ("apple", apple::run),
    ("arrays", arrays::run),
    ("carve", carve::run),
    ("certificate", certificate::run),
    ("client_handshake", client_handshake::run),
    ("client_reply", client_reply::run),
    ("compressed", compressed::run),
    ("control", control::run),
    ("custody", custody::run),
    ("ewf", ewf::run),
    ("formats", formats::run),
    ("gps", gps::run),
    ("iscsi", iscsi::run),
    ("journal", journal::run),
    ("known_set", known_set::run),
    ("logical_volumes", logical_volumes::run),
    ("parity", parity::run),
    ("partition_table", partition_table::run),
    ("patterns", patterns::run),
    ("probe_reply", probe_reply::run),
    ("record", record::run),
    ("request", request::run),
    ("room", room::run),
    ("seal", seal::run),
    ("server_handshake", server_handshake::run),
    ("shadow_copies", shadow_copies::run),
    ("split", split::run),
    ("store_answer", store_answer::run),
    ("survey", survey::run),
    ("tls_handshake", tls_handshake::run),
    ("unlock_header", unlock_header::run),
    ("upload_record", upload_record::run),
];

/// Returns the target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
