//! Checking a log: in one pass, in bounded memory, whatever its bytes are.
//!
//! Records are accepted one by one, each standing behind the one before. At the first that does not, accepting ends;
//! what follows is only looked at to tell what happened: whether the record that belongs here comes later
//! (then lines were inserted before it, or swapped with it), and whether another one of this one's number does.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use cheetah_image::hash::hex;
use cheetah_image::{Error, Result};
use sha2::{Digest as _, Sha256};

use super::LINES_MAX;
use super::event::Event;
use super::key::{KeyId, PublicKey};
use super::lines::{Line, for_each};
use super::record::{Link, ORIGIN, Parsed};
use super::report::{Began, Fault, FinishedAt, LogReport, Place, Problem, Signer, State};

/// Keys that one log may introduce.
const KEYS_MAX: usize = 64;

/// Checks the log at `path`. Keys in `trusted` may sign any record; of others, only the one that signed the first record
/// may, and the report says that it is not trusted.
///
/// # Errors
///
/// If the file cannot be read. What is wrong with the log is in the report.
pub fn verify_log(path: &Path, trusted: &[PublicKey]) -> Result<LogReport> {
    let doing = |error| Error::io(format_args!("reading the custody log {}", path.display()), &error);
    let file = File::open(path).map_err(doing)?;
    check(BufReader::new(file), trusted).map_err(doing)
}

/// As [`verify_log`], for a log that is read from anywhere.
///
/// # Errors
///
/// Those of reading.
pub fn check(log: impl BufRead, trusted: &[PublicKey]) -> std::io::Result<LogReport> {
    Ok(read(log, Trust::Keys(trusted))?.report)
}

/// Whose signatures count.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// These, and the log's first.
    Keys(&'a [PublicKey]),
    /// Any key that the log introduces.
    Anyone,
}

/// A log that was read to its end.
pub struct Read {
    /// What is to be said of it.
    pub report: LogReport,
    /// What the next record has to stand behind.
    pub prev: Link,
    /// Lines at its end that are no records, because a crash cut them off.
    pub torn: u64,
    /// Whether a newline is missing at its end.
    pub open_line: bool,
    /// Who signed the last record.
    pub key: Option<KeyId>,
}

/// Reads a log to its end.
pub fn read(log: impl BufRead, trust: Trust<'_>) -> std::io::Result<Read> {
    let mut checker = Checker::new(trust);
    for_each(log, |line| checker.line(&line))?;
    Ok(checker.finish())
}

struct Checker<'a> {
    trust: Trust<'a>,
    keys: HashMap<KeyId, PublicKey>,
    /// SHA-256 of the last accepted record's line.
    link: Link,
    /// The same, and the lines behind it that are no records.
    behind: Sha256,
    /// How many these are.
    broken: u64,
    ended: bool,
    /// Where accepting ended.
    bad: Option<Bad>,
    last_key: Option<KeyId>,
    report: LogReport,
}

/// The first line that does not belong where it is.
struct Bad {
    line: u64,
    /// Of the line; `None` if it has not even the form of a record.
    record: Option<Misfit>,
    /// The record that would have belonged here, if it comes later.
    expected_at: Option<u64>,
    /// Whether a record of the same number comes later.
    again: bool,
}

/// A record that does not stand behind the one before it.
struct Misfit {
    seq: u64,
    /// Torn lines it says were before it, more than there are.
    torn_missing: bool,
    key: KeyId,
    signature: Signature,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Signature {
    Good,
    /// Good, but by a key that may not sign here.
    Foreign,
    Bad,
    /// By a key nobody introduced.
    Unknown,
}

fn digest_line(bytes: &[u8]) -> Sha256 {
    Sha256::new_with_prefix(bytes).chain_update(b"\n")
}

impl<'a> Checker<'a> {
    fn new(trust: Trust<'a>) -> Self {
        let trusted = if let Trust::Keys(keys) = trust { keys } else { &[] };
        let behind = Sha256::new_with_prefix(ORIGIN);
        Self {
            trust,
            keys: trusted.iter().map(|key| (key.id(), *key)).collect(),
            link: behind.clone().finalize().into(),
            behind,
            broken: 0,
            ended: true,
            bad: None,
            last_key: None,
            report: LogReport::default(),
        }
    }

    /// Takes the next line; false to stop.
    fn line(&mut self, line: &Line<'_>) -> bool {
        self.report.lines += 1;
        self.ended = line.ended;
        if self.report.lines > LINES_MAX as u64 {
            let problem = || Problem {
                line: LINES_MAX as u64 + 1,
                fault: Fault::Overlong,
                why: format!("no log that Cheetah writes has more than {LINES_MAX}"),
            };
            self.report.problem.get_or_insert_with(problem);
            return false;
        }
        let parsed = Parsed::of(line.bytes);
        match (parsed, &self.bad) {
            (Some(parsed), None) => self.record(&parsed, line.bytes),
            (None, None) => {
                self.behind.update(line.bytes);
                self.behind.update(b"\n");
                self.broken += 1;
            }
            (Some(parsed), Some(_)) => {
                self.introduce(&parsed);
                self.look_for_what_is_missing(&parsed);
            }
            (None, Some(_)) => {}
        }
        true
    }

    /// Takes a record while all is well.
    fn record(&mut self, parsed: &Parsed<'_>, bytes: &[u8]) {
        self.introduce(parsed);
        let signature = self.signature(parsed);
        let behind: Link = self.behind.clone().finalize().into();
        let in_order =
            parsed.record.seq == self.next_seq() && parsed.record.torn == self.broken && parsed.prev == behind;
        if in_order && signature == Signature::Good {
            return self.accept(parsed, bytes);
        }
        let broken = self.broken > 0;
        let misfit = Misfit {
            seq: parsed.record.seq,
            torn_missing: parsed.record.torn > self.broken,
            key: parsed.key,
            signature,
        };
        let record = (!broken).then_some(misfit);
        self.bad = Some(Bad { line: self.report.lines - self.broken, record, expected_at: None, again: false });
        if broken {
            // The lines before this one may be all that does not belong here.
            self.look_for_what_is_missing(parsed);
        }
    }

    fn next_seq(&self) -> u64 {
        self.report.records + 1
    }

    fn introduce(&mut self, parsed: &Parsed<'_>) {
        if let Some(key) = parsed.introduces.filter(|_| self.keys.len() < KEYS_MAX) {
            self.keys.entry(parsed.key).or_insert(key);
        }
    }

    fn signature(&self, parsed: &Parsed<'_>) -> Signature {
        match self.keys.get(&parsed.key) {
            None => Signature::Unknown,
            Some(key) if !parsed.is_signed_by(*key) => Signature::Bad,
            Some(key) if self.may_sign(*key) => Signature::Good,
            Some(_) => Signature::Foreign,
        }
    }

    fn may_sign(&self, key: PublicKey) -> bool {
        let first = self.report.signers.first();
        self.is_trusted(key) || first.is_none_or(|first| first.key == key.id())
    }

    fn is_trusted(&self, key: PublicKey) -> bool {
        match self.trust {
            Trust::Keys(keys) => keys.contains(&key),
            Trust::Anyone => true,
        }
    }

    fn accept(&mut self, parsed: &Parsed<'_>, bytes: &[u8]) {
        self.report.records += 1;
        self.report.torn_lines += self.broken;
        self.broken = 0;
        self.behind = digest_line(bytes);
        self.link = self.behind.clone().finalize().into();
        self.last_key = Some(parsed.key);
        let place = Place { line: self.report.lines, sha256: hex(&self.link) };
        self.report.last = Some(place.clone());
        self.count_signer(parsed.key);
        self.tell(parsed, place);
    }

    fn count_signer(&mut self, key: KeyId) {
        if let Some(signer) = self.report.signers.iter_mut().find(|signer| signer.key == key) {
            signer.records += 1;
            return;
        }
        if let Some(public) = self.keys.get(&key) {
            let (public_key, trusted) = (public.to_string(), self.is_trusted(*public));
            self.report.signers.push(Signer { key, public_key, records: 1, trusted });
        }
    }

    /// Takes down what an accepted record says.
    fn tell(&mut self, parsed: &Parsed<'_>, place: Place) {
        let record = &parsed.record;
        let report = &mut self.report;
        report.began.get_or_insert_with(|| Began {
            time: record.time.clone(),
            host: record.host.clone(),
            user: record.user.clone(),
            tool: record.tool.clone(),
        });
        *report.events.entry(record.name.clone()).or_default() += 1;
        match record.event() {
            Some(Event::Started(started)) => {
                report.state = State::Unfinished;
                report.finished = None;
                report.source = Some(started.source);
                report.case = Some(started.case);
            }
            Some(Event::Resumed { .. }) => report.state = State::Unfinished,
            Some(Event::Stopped { .. }) => report.state = State::Stopped,
            Some(Event::Finished(finished)) => {
                report.state = State::Finished;
                report.finished = Some(FinishedAt { place, time: record.time.clone(), finished: *finished });
            }
            _ if report.state == State::Empty => report.state = State::Unfinished,
            _ => {}
        }
    }

    /// Whether this is the record that belongs where accepting ended.
    fn look_for_what_is_missing(&mut self, parsed: &Parsed<'_>) {
        let belongs = parsed.record.seq == self.next_seq() && parsed.prev == self.link;
        let good = belongs && self.signature(parsed) == Signature::Good;
        let Some(bad) = &mut self.bad else { return };
        if good {
            bad.expected_at.get_or_insert(self.report.lines);
        }
        bad.again |= bad.record.as_ref().is_some_and(|misfit| misfit.seq == parsed.record.seq);
    }

    fn finish(mut self) -> Read {
        // The last line, if it was cut off, is what a crash leaves behind; one that has its end is not.
        if self.bad.is_none() && self.broken > 0 && self.ended {
            let line = self.report.lines - self.broken + 1;
            self.bad = Some(Bad { line, record: None, expected_at: None, again: false });
        }
        if let Some(bad) = &self.bad {
            let (fault, why) = bad.diagnose(self.next_seq());
            self.report.problem = Some(Problem { line: bad.line, fault, why });
        } else if self.broken > 0 {
            self.report.torn_lines += self.broken;
            self.report.state = State::Unfinished;
        }
        Read {
            prev: self.behind.finalize().into(),
            torn: self.broken,
            open_line: !self.ended,
            key: self.last_key,
            report: self.report,
        }
    }
}

impl Bad {
    /// What happened, where record `expected` belongs.
    fn diagnose(&self, expected: u64) -> (Fault, String) {
        let signed = |record: &&Misfit| record.signature != Signature::Bad;
        match (&self.record, self.expected_at) {
            (record, Some(at)) => match record.as_ref().filter(signed) {
                Some(record) if record.seq > expected && !self.again => (
                    Fault::Swapped,
                    format!("record {} stands here; record {expected} comes later, on line {at}", record.seq),
                ),
                _ => (Fault::Inserted, format!("record {expected}, which belongs here, is on line {at}")),
            },
            (None, None) => (Fault::Altered, format!("record {expected} belongs here, and this is no record")),
            (Some(record), None) => record.diagnose(expected),
        }
    }
}

impl Misfit {
    fn diagnose(&self, expected: u64) -> (Fault, String) {
        let Self { seq, key, .. } = self;
        match self.signature {
            Signature::Bad => (Fault::Altered, "its signature does not fit what it says".into()),
            _ if *seq == expected + 1 => {
                (Fault::Removed, format!("record {expected} is missing; record {seq} stands here"))
            }
            _ if *seq > expected => {
                (Fault::Removed, format!("records {expected} to {} are missing; record {seq} stands here", seq - 1))
            }
            Signature::Unknown => (Fault::Foreign, format!("{key}, which the log does not introduce")),
            Signature::Foreign => (Fault::Foreign, format!("{key}, which is neither the log's own nor one you named")),
            Signature::Good if *seq < expected => {
                (Fault::Inserted, format!("record {seq} stands here, where record {expected} belongs"))
            }
            Signature::Good if self.torn_missing => {
                (Fault::Removed, "it says that cut-off lines stand before it, and they do not".into())
            }
            Signature::Good => {
                (Fault::Inserted, "it does not stand behind the record before it: it is of another log".into())
            }
        }
    }
}
