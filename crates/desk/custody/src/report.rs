//! The result of checking a log.

use cheetah_error::Next;
use cheetah_error::next::Acquisition;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::event::{Finished, RedundancyCompared, Verified};
use crate::key::KeyId;
use crate::record::{ActingAs, PrevDigest};
use crate::triage::Triaged;
use crate::wipes::{BadWipe, Wipes};

/// The result of checking a log. Facts come only from records before the first problem.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogReport {
    /// The number of lines.
    pub lines: u64,
    /// The number of records in order, from the first.
    pub records: u64,
    /// Unfinished lines among them that an earlier version left in the log; the signature of the record after them covers
    /// them.
    pub torn_lines: u64,
    /// An unfinished line at the end: a write was interrupted. No record is affected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished_line: Option<UnfinishedLine>,
    /// The first line that was tampered with.
    pub problem: Option<Problem>,
    /// The keys that signed, in the order of their first records.
    pub signers: Vec<Signer>,
    /// The state in which the log ends.
    pub state: State,
    /// The last record's line and its SHA-256, newline included, to which the next record would refer.
    pub last: Option<RecordPlace>,
    /// Which log this is: SHA-256 of the line of its first record.
    pub id: Option<String>,
    /// The time of the last record.
    pub last_time: Option<String>,
    /// SHA-256 of the line of each record in order.
    #[serde(skip)]
    pub(crate) chain: Vec<PrevDigest>,
    /// The heads that were known elsewhere, and compared with the log.
    pub heads: Vec<KnownHead>,
    /// Where heads may be known that could not be asked for, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_asked: Vec<String>,
    /// Another log was expected at this path: a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
    /// Whether the drive was destroyed, and nothing acquired since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub destroyed: bool,
    /// The number of events, by name.
    pub events: BTreeMap<String, u64>,
    /// The source in the last `started` record.
    pub source: Option<Value>,
    /// The case data in the last `started` record.
    pub case: Option<Value>,
    /// Time, machine, user and tool of the first record.
    pub began: Option<Began>,
    /// The last `finished` record.
    pub finished: Option<FinishedAt>,
    /// The `finished` record before the last `started` record. An image keeps its place until the next one is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<FinishedAt>,
    /// The last record since the last `started` record that vouches for a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<SignedJournal>,
    /// The one before that.
    #[serde(skip)]
    pub(crate) journal_before: Option<SignedJournal>,
    /// The last `verified` record, if no record after it says that the content became another.
    #[serde(skip)]
    pub verified: Option<VerifiedAt>,
    /// The last comparison of the redundancy with the content, likewise.
    #[serde(skip)]
    pub compared: Option<RedundancyCompared>,
    /// The result in the last `triaged` record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triaged: Option<Triaged>,
    /// The receipts of nodes that wiped the drive.
    #[serde(skip_serializing_if = "Wipes::is_empty")]
    pub wipes: Wipes,
}

/// A head that was known, and whether the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KnownHead {
    /// Where it was known from, such as `your ledger`.
    pub from: String,
    /// The number of records of the log then.
    pub records: u64,
    /// The time of the head, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// How the log differs, as a sentence; `None` if it has this head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The last line of a log, where it is only the beginning of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnfinishedLine {
    /// Its line, from 1.
    pub line: u64,
    /// Bytes of it.
    pub bytes: u64,
}

impl fmt::Display for UnfinishedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, bytes } = self;
        write!(
            f,
            "line {line} is unfinished ({bytes} bytes): a write was interrupted, by a power cut or a full disk; the next \
             record replaces it and says so"
        )
    }
}

/// The start of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Began {
    /// RFC 3339.
    pub time: String,
    /// The machine.
    pub host: String,
    /// The user.
    pub user: String,
    /// The member of a room that the process acted as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<ActingAs>,
    /// Program and version.
    pub tool: String,
}

/// The place of a record in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordPlace {
    /// Its line, from 1.
    pub line: u64,
    /// SHA-256 of the line, newline included, in hexadecimal.
    pub sha256: String,
}

/// The end of an acquisition, and the record of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FinishedAt {
    /// The record. Its hash, noted elsewhere, later proves that nothing before it was cut off.
    pub place: RecordPlace,
    /// The time of the record.
    pub time: String,
    /// The record's details.
    #[serde(flatten)]
    pub finished: Finished,
}

/// A verification, and when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedAt {
    /// The time of the record.
    pub time: String,
    /// The record's details.
    pub verified: Verified,
}

/// A journal that a record vouches for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignedJournal {
    /// The line of the record, from 1.
    pub line: u64,
    /// The key that signed the record.
    pub key: KeyId,
    /// Bytes that were on stable storage.
    pub at: u64,
    /// SHA-256 of the journal, in hexadecimal.
    pub sha256: String,
}

/// A key that signed records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Signer {
    /// The key's short name.
    pub key: KeyId,
    /// The key.
    pub public_key: String,
    /// The number of records it signed.
    pub records: u64,
    /// Whether the caller trusts it.
    pub trusted: bool,
}

/// The state in which a log ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There are no records.
    #[default]
    Empty,
    /// An acquisition has no final record: it is running or was killed, or the end was cut off.
    Unfinished,
    /// The last acquisition was stopped, and may be resumed.
    Stopped,
    /// Nothing was acquired; the records are of the use of a drive.
    Use,
    /// The last acquisition was finished.
    Finished,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The line differs from the signed one.
    Altered,
    /// Records are missing before it.
    Removed,
    /// The line precedes a record that belongs before it.
    Swapped,
    /// The line does not belong here.
    Inserted,
    /// The line is signed by a key that is neither the log's first nor trusted.
    Foreign,
    /// The log has too many lines.
    Overlong,
}

/// The first problem of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// Its kind.
    pub fault: Fault,
    /// The evidence for it.
    pub why: String,
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.fault {
            Fault::Altered => "altered",
            Fault::Removed => "lines removed before it",
            Fault::Swapped => "out of order",
            Fault::Inserted => "inserted",
            Fault::Foreign => "signed by a foreign key",
            Fault::Overlong => "too many lines",
        };
        write!(f, "line {}: {word}: {}", self.line, self.why)
    }
}

/// What is not in order with a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogProblem {
    /// A line.
    #[error("{0}")]
    Line(Problem),
    /// The caller does not trust a key that signed records.
    #[error("signed by {0}, not by a key you named")]
    Untrusted(KeyId),
    /// It is not the log that was in its place; the sentence says since when.
    #[error("{0}")]
    Replaced(String),
    /// It has not a head that was known; the sentence says how it differs.
    #[error("{0}")]
    Head(String),
    /// A receipt of a wipe.
    #[error("{0}")]
    Wipe(BadWipe),
    /// It has no record.
    #[error("there is no record in it")]
    Empty,
    /// No record ends the acquisition.
    #[error(
        "line {line}: unfinished: it is the last, and no record says how the acquisition ended: that is under way or was \
         killed, or the end of the log was cut off"
    )]
    Unfinished {
        /// The last line, from 1.
        line: u64,
    },
}

impl LogReport {
    /// Whether the log is in order, has a final record, and was signed by trusted keys alone.
    pub fn is_ok(&self) -> bool {
        self.problems().is_empty()
    }

    /// What the examiner can do about the problems.
    pub fn steps(&self) -> impl Iterator<Item = Next> {
        let untrusted = self.signers.iter().filter(|signer| !signer.trusted);
        untrusted.map(|signer| Acquisition::NameKey { key: signer.public_key.clone() }.into())
    }

    /// Returns the problems; the worst first.
    pub fn problems(&self) -> Vec<LogProblem> {
        let mut problems: Vec<_> = self.problem.iter().cloned().map(LogProblem::Line).collect();
        let untrusted = self.signers.iter().filter(|signer| !signer.trusted);
        problems.extend(untrusted.map(|signer| LogProblem::Untrusted(signer.key)));
        problems.extend(self.replaced.iter().cloned().map(LogProblem::Replaced));
        problems.extend(self.heads.iter().filter_map(|head| head.problem.clone()).map(LogProblem::Head));
        problems.extend(self.wipes.problems.iter().cloned().map(LogProblem::Wipe));
        let line = self.last.as_ref().map_or(0, |last| last.line);
        match self.state {
            _ if self.problem.is_some() => {}
            State::Empty => problems.push(LogProblem::Empty),
            State::Unfinished => problems.push(LogProblem::Unfinished { line }),
            State::Stopped | State::Finished | State::Use => {}
        }
        problems
    }
}
