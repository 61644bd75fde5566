//! What a check of a log found.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::event::Finished;
use super::key::KeyId;

/// What is to be said of a log. What comes from its records comes only from those before the first problem.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LogReport {
    /// Lines there are.
    pub lines: u64,
    /// Records, from the first, that are in order.
    pub records: u64,
    /// Lines among them that a crash cut off: not records, and vouched for by the record behind them.
    pub torn_lines: u64,
    /// The first line that is not as it was written.
    pub problem: Option<Problem>,
    /// Who signed, in the order in which they came.
    pub signers: Vec<Signer>,
    /// How the log ends.
    pub state: State,
    /// The last record's line and the SHA-256 of it, newline included, which is what a later record would stand behind.
    pub last: Option<Place>,
    /// Events, by name.
    pub events: BTreeMap<String, u64>,
    /// The source, as the last `started` has it.
    pub source: Option<Value>,
    /// The case data, as the last `started` has it.
    pub case: Option<Value>,
    /// The first record: when, on which machine, by whom and with what it was written.
    pub began: Option<Began>,
    /// The last `finished` record.
    pub finished: Option<FinishedAt>,
}

/// How a log began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Began {
    /// RFC 3339.
    pub time: String,
    /// The machine.
    pub host: String,
    /// The user.
    pub user: String,
    /// Program and version.
    pub tool: String,
}

/// A record in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its line, from 1.
    pub line: u64,
    /// SHA-256 of the line, newline included, in hexadecimal.
    pub sha256: String,
}

/// How an acquisition ended, and where that is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FinishedAt {
    /// The record: its hash, noted elsewhere, shows later that nothing was cut off before it.
    pub place: Place,
    /// When.
    pub time: String,
    /// What it says.
    #[serde(flatten)]
    pub finished: Finished,
}

/// A key that signed records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signer {
    /// The key's short name.
    pub key: KeyId,
    /// The key.
    pub public_key: String,
    /// Records it signed.
    pub records: u64,
    /// Whether it is one the checker was told to trust.
    pub trusted: bool,
}

/// How a log ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There is no record.
    #[default]
    Empty,
    /// An acquisition began, and no record says how it ended: it is under way or was killed, or the end was cut off.
    Unfinished,
    /// The last acquisition was stopped in good order, and may be resumed.
    Stopped,
    /// The last acquisition was finished.
    Finished,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The line is not as it was signed.
    Altered,
    /// Records are missing before it.
    Removed,
    /// It stands before the record that belongs here, which comes later.
    Swapped,
    /// It does not belong here.
    Inserted,
    /// It is signed, but by a key that is neither the log's first nor a trusted one.
    Foreign,
    /// There are more lines than a log may have.
    Overlong,
}

/// The first thing that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// What happened to it.
    pub fault: Fault,
    /// How that shows.
    pub why: String,
}

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

impl LogReport {
    /// Whether the log is whole, ends as a log should, and was signed by trusted keys alone.
    pub fn is_ok(&self) -> bool {
        self.problems().is_empty()
    }

    /// All that is wrong, a sentence each; the worst first.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<_> = self.problem.iter().map(Problem::to_string).collect();
        for signer in self.signers.iter().filter(|signer| !signer.trusted) {
            problems.push(format!(
                "signed by {}, not by a key you named; if you know whose it is, name it: --key {}",
                signer.key, signer.public_key
            ));
        }
        let end = self.last.as_ref().map_or(0, |last| last.line);
        match self.state {
            _ if self.problem.is_some() => {}
            State::Empty => problems.push("there is no record in it".into()),
            State::Unfinished => problems.push(format!(
                "line {end}: unfinished: it is the last, and no record says how the acquisition ended: that is under way or \
                 was killed, or the end of the log was cut off"
            )),
            State::Stopped | State::Finished => {}
        }
        problems
    }
}
