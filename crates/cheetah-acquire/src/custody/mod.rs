//! The custody log: who did what to evidence, when and with what, in a chain of signed records.
//!
//! A log is a file beside the image (`x.E01.custody`), one JSON object a line, only ever appended to. Each record
//! carries the SHA-256 of what stands before it and an Ed25519 signature, so that a line altered, removed, swapped or
//! inserted is found, and the first of them named. What is signed is the line itself, byte for byte: there is no
//! canonical form to disagree about. `docs/custody.md` has the format, and how to check it without this program.
//!
//! | part | what it is |
//! |---|---|
//! | [`SigningKey`], [`PublicKey`], [`KeyId`] | the examiner's key, made on first use, and who signed |
//! | [`Event`] | what happened |
//! | [`CustodyLog`] | a log open for appending |
//! | [`verify_log`] | checks a log and says what is wrong with it: a [`LogReport`] |
//! | [`audit()`] | reads an image in full and compares it with its log: an [`Audit`] |
//!
//! What a chain cannot show is that its end was cut off. A log therefore ends with a record that says it does
//! ([`Event::Finished`], [`Event::Stopped`]); one that does not is reported as unfinished.

mod audit;
mod check;
mod event;
mod filling;
mod key;
mod lines;
mod log;
mod read;
mod record;
mod report;

pub use audit::{Audit, AuditOptions, Comparison, audit};
pub use check::{check, verify_log};
pub use cheetah_image::coverage::map_path;
pub use event::{Event, Finished, Span, Started, Verified, source};
pub use filling::FillLog;
pub use key::{KeyId, PublicKey, SigningKey};
pub use log::{CustodyLog, Receipt};
pub use read::Damage;
pub use report::{Began, Fault, FinishedAt, LogReport, Place, Problem, Signer, State};

/// Bytes a line of a log may have, its newline included. Bounds what a hostile log can make us allocate, and is room
/// for a source with many thousand unreadable ranges.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Lines a log may have.
pub const LINES_MAX: usize = 1 << 20;
