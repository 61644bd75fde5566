//! Acquisition: one pass over a source, into several images and drives at once, hashed.
//!
//! ```text
//!                                     ┌▶ a thread a hash            MD5, SHA-1, SHA-256, BLAKE3
//!  source ─▶ reader: many chunks ─────┼▶ a queue ▶ sink             raw
//!            in flight, in order,     ├▶ a queue ▶ sink             E01
//!            bad sectors salvaged     └▶ a queue ▶ sink             drive
//!                                            └──── all durable? ──▶ journal
//! ```
//!
//! Invariants:
//!
//! * **Every byte is correct, or recorded as unreadable.** An image holds zeros for unreadable sectors; the coverage map,
//!   the E01's error table, the report and the exit code say so.
//! * **The same command resumes.** The [`journal`](crate::journal) beside the first destination records what is durable in
//!   every sink. On resumption, the sinks are read back, compared with the digests in the journal and hashed
//!   again; the source is read from there on.
//! * **The same source.** Whenever it is opened again, its identity is compared, and the chunks that were read before: all
//!   of them by digests where an agent makes these, a random sample elsewhere.
//! * **A named image is complete.** An image gets its name only when all of it is on stable storage.

mod begin;
mod compare;
mod complete;
mod decrypt;
mod recorder;
mod run;
mod side_files;

pub use begin::{discard, refuse_source_named};
pub use compare::{CompareOrder, Comparison, VolumeCompared};
pub use decrypt::{DecryptOrder, content_of, decrypt};
pub use run::acquire;

pub use crate::report::{Report, SinkReport};
