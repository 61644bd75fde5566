//! The custody log: a chain of signed records of every action on evidence.
//!
//! A log is a file beside the image (`x.E01.custody`) with one JSON object a line, and is only appended to. Each record has
//! the SHA-256 of the preceding line and an Ed25519 signature, so an altered, removed, swapped or inserted line is detected,
//! and the first one is named. The signature covers the bytes of the line, so no canonical form is needed. `docs/guide/custody.md`
//! describes the format, and how to check it without this program.
//!
//! | part | purpose |
//! |---|---|
//! | [`SigningKey`], [`PublicKey`], [`KeyId`] | the examiner's key, made on first use |
//! | [`CustodyEvent`] | an action or incident |
//! | [`CustodyLog`] | a log open for appending |
//! | [`Custodian`] | what a process keeps of logs elsewhere |
//! | [`verify_log`] | checks a log: a [`LogReport`] |
//! | [`audit()`] | reads an image in full and compares it with its log: an [`Audit`] |
//!
//! A chain cannot show that its end was cut off. A log therefore ends with a final record ([`CustodyEvent::Finished`],
//! [`CustodyEvent::Stopped`]); a log without one is reported as unfinished. And its [`Head`] is kept where the folder of the
//! evidence is out of reach ([`ledger`], [`placed`]).

#![forbid(unsafe_code)]

pub mod acquisition_report;
mod agreement;
mod audit;
mod check;
mod custodian;
mod event;
mod filling;
mod head;
mod key;
pub mod ledger;
mod lines;
mod log;
mod log_file;
mod os;
pub mod placed;
mod read;
mod record;
mod report;
mod tail;
mod triage;
mod wipes;

pub use agreement::DriveRecords;
pub use audit::{Audit, AuditOptions, Comparison, audit};
pub use check::{Known, check, verify_log};
pub use cheetah_image::coverage::map_path;
pub use custodian::Custodian;
pub use event::{
    ContentOf, CustodyEvent, Decrypted, FILES_LOGGED_TOGETHER, FileRead, Finished, RedundancyCompared, Span, Started,
    Verified, VolumeOf, source,
};
pub use filling::FillLog;
pub use head::{Head, NotAHead, NotedHead};
pub use key::{KeyId, PublicKey, SigningKey};
pub use ledger::Ledger;
pub use log::{CustodyLog, Receipt};
pub use placed::PlacedHead;
pub use read::Damage;
pub use report::{
    Began, Fault, FinishedAt, KnownHead, LogProblem, LogReport, Problem, RecordPlace, SignedJournal, Signer, State,
    UnfinishedLine, VerifiedAt,
};
pub use tail::{LastRecord, last_records};
pub use triage::{OutputDifference, OutputFile, Triaged};
pub use wipes::{BadWipe, Wipes};

/// The maximum length of a line, its newline included. Bounds the memory that a hostile log can take, and has room for a
/// source with many thousand unreadable ranges.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// The maximum number of lines in a log.
pub const LINES_MAX: usize = 1 << 20;
