//! Checks a log of any bytes, in one pass and in bounded memory.
//!
//! Records are accepted as long as each refers to the one before it. After the first that does not, lines are read only to
//! determine the kind of damage: whether the missing record comes later (then lines were inserted before it, or swapped
//! with it), and whether another record of the same number comes later.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use cheetah_error::{Error, Result};
use cheetah_image::hash::hex;
use sha2::{Digest as _, Sha256};

use crate::event::CustodyEvent;
use crate::head::NotedHead;
use crate::key::{KeyId, PublicKey};
use crate::lines::{LogLine, for_each};
use crate::log_file::LOG;
use crate::record::{ORIGIN, Parsed, PrevDigest};
use crate::report::{
    Began, Fault, FinishedAt, LogReport, Problem, RecordPlace, SignedJournal, Signer, State, UnfinishedLine, VerifiedAt,
};
use crate::{LINE_BYTES_MAX, LINES_MAX};
use crate::{Ledger, PlacedHead, placed};

/// Bytes that the beginning of a record takes at most: `{"seq":18446744073709551615,`.
const RECORD_BEGINS_MAX: usize = 28;
/// The maximum number of keys that a log may introduce.
const KEYS_MAX: usize = 64;

/// Checks the log at `path`, and compares it with each [head](crate::head) that is known of it: that in the ledger, and those
/// given. The given keys may sign any record. Of other keys, only the one that signed
/// the first record may, and the report says that it is not trusted.
///
/// # Errors
///
/// If the file cannot be read, or is a symbolic link. Problems of the log are in the report.
pub fn verify_log(path: &Path, known: &Known) -> Result<LogReport> {
    let shown = path.display();
    let file = LOG.open_with(path, OpenOptions::new().read(true))?;
    let file = file.ok_or_else(|| Error::failed(format!("there is no custody log {shown}")))?;
    let doing = |error| Error::io(format_args!("reading the custody log {shown}"), &error);
    let mut report = check(BufReader::new(file), &known.keys).map_err(doing)?;
    if let Some(ledger) = &known.ledger {
        ledger.compare(&mut report, path, &known.keys);
    }
    for (from, head) in &known.heads {
        report.compare_with_head(head, from, None);
    }
    for (from, heads) in &known.placed {
        placed::compare(&mut report, path, (from, heads), &known.keys);
    }
    report.not_asked.clone_from(&known.not_asked);
    Ok(report)
}

/// What is known before a log is read. [`Custodian::known`](crate::Custodian::known) adds the ledger.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The trusted keys.
    pub keys: Vec<PublicKey>,
    /// The user's ledger, if one is kept.
    pub ledger: Option<Arc<Ledger>>,
    /// The heads that are known, and from where.
    pub heads: Vec<(String, NotedHead)>,
    /// The heads that are known of logs at several places, and from where.
    pub placed: Vec<(String, Vec<PlacedHead>)>,
    /// Where heads may be known that could not be asked for, a sentence each.
    pub not_asked: Vec<String>,
}

/// As [`verify_log`], for any reader.
///
/// # Errors
///
/// Those of reading.
pub fn check(log: impl BufRead, trusted: &[PublicKey]) -> std::io::Result<LogReport> {
    Ok(read(log, Trust::Keys(trusted))?.report)
}

/// The keys that may sign.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// These, and the log's first key.
    Keys(&'a [PublicKey]),
    /// Any key that the log introduces.
    Anyone,
}

/// A log that was checked to its end.
pub struct CheckedLog {
    /// The result.
    pub report: LogReport,
    /// The digest that the next record must refer to.
    pub prev: PrevDigest,
    /// Bytes of the log up to the end of the last record. An unfinished line may follow.
    pub whole_bytes: u64,
    /// Whether the last record lacks its newline.
    pub open_line: bool,
    /// The key of the last record.
    pub key: Option<KeyId>,
}

/// Checks a log to its end.
pub fn read(log: impl BufRead, trust: Trust<'_>) -> std::io::Result<CheckedLog> {
    let mut checker = Checker::new(trust);
    for_each(log, |line| checker.line(&line))?;
    Ok(checker.finish())
}

struct Checker<'a> {
    trust: Trust<'a>,
    keys: HashMap<KeyId, PublicKey>,
    /// SHA-256 of the last accepted record's line.
    link: PrevDigest,
    /// The running digest of that line and of the lines after it that are no records.
    behind: Sha256,
    /// The number of these lines.
    broken: u64,
    /// How the first of these begins.
    broken_begins: Vec<u8>,
    ended: bool,
    /// Bytes read so far.
    bytes: u64,
    /// Bytes up to the end of the last accepted record.
    whole_bytes: u64,
    /// The line at which accepting ended.
    bad: Option<FirstBadLine>,
    last_key: Option<KeyId>,
    report: LogReport,
}

/// The first line that does not belong where it is.
struct FirstBadLine {
    line: u64,
    /// The record; `None` if the line does not have the form of one.
    record: Option<BrokenLink>,
    /// The line of the missing record, if it comes later.
    expected_at: Option<u64>,
    /// Whether another record of the same number comes later.
    again: bool,
}

/// A record that does not refer to the one before it.
struct BrokenLink {
    seq: u64,
    /// Whether it counts more unfinished lines before it than there are.
    torn_missing: bool,
    key: KeyId,
    signature: Signature,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Signature {
    Good,
    /// Valid, but by a key that may not sign here.
    Foreign,
    Bad,
    /// By a key that no record introduces.
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
            broken_begins: Vec::new(),
            ended: true,
            bytes: 0,
            whole_bytes: 0,
            bad: None,
            last_key: None,
            report: LogReport::default(),
        }
    }

    /// Takes the next line; returns false to stop.
    fn line(&mut self, line: &LogLine<'_>) -> bool {
        self.report.lines += 1;
        self.bytes += line.len;
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
                if self.broken == 0 {
                    self.broken_begins = line.bytes[..line.bytes.len().min(RECORD_BEGINS_MAX)].to_vec();
                }
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

    /// Takes a record while all lines so far are in order.
    fn record(&mut self, parsed: &Parsed<'_>, bytes: &[u8]) {
        self.introduce(parsed);
        let signature = self.signature(parsed);
        let behind: PrevDigest = self.behind.clone().finalize().into();
        let in_order =
            parsed.record.seq == self.next_seq() && parsed.record.torn == self.broken && parsed.prev == behind;
        if in_order && signature == Signature::Good {
            return self.accept(parsed, bytes);
        }
        let broken = self.broken > 0;
        let misfit = BrokenLink {
            seq: parsed.record.seq,
            torn_missing: parsed.record.torn > self.broken,
            key: parsed.key,
            signature,
        };
        let record = (!broken).then_some(misfit);
        self.bad =
            Some(FirstBadLine { line: self.report.lines - self.broken, record, expected_at: None, again: false });
        if broken {
            // Only the lines before this one may be out of place.
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
        self.whole_bytes = self.bytes;
        self.behind = digest_line(bytes);
        self.link = self.behind.clone().finalize().into();
        self.last_key = Some(parsed.key);
        let place = RecordPlace { line: self.report.lines, sha256: hex(&self.link) };
        self.report.last = Some(place.clone());
        self.report.last_time = Some(parsed.record.time.clone());
        self.report.id.get_or_insert_with(|| place.sha256.clone());
        self.report.chain.push(self.link);
        self.count_signer(parsed.key);
        self.note_facts(parsed, place);
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

    /// Adds an accepted record's facts to the report.
    fn note_facts(&mut self, parsed: &Parsed<'_>, place: RecordPlace) {
        let record = &parsed.record;
        let report = &mut self.report;
        report.began.get_or_insert_with(|| Began {
            time: record.time.clone(),
            host: record.host.clone(),
            user: record.user.clone(),
            credential: record.credential.clone(),
            tool: record.tool.clone(),
        });
        *report.events.entry(record.name.clone()).or_default() += 1;
        let event = record.event();
        note_verification(report, event.as_ref(), &record.time);
        match event {
            Some(CustodyEvent::Started(started)) => {
                report.state = State::Unfinished;
                report.destroyed = false;
                report.earlier = report.finished.take().or(report.earlier.take());
                report.journal = None;
                report.journal_before = None;
                report.triaged = None;
                report.source = Some(started.source);
                report.case = Some(started.case);
            }
            Some(CustodyEvent::Resumed { .. }) => report.state = State::Unfinished,
            Some(CustodyEvent::Checkpoint { at, journal: Some(sha256) }) => {
                report.journal_before = report.journal.take();
                report.journal = Some(SignedJournal { line: place.line, key: parsed.key, at, sha256 });
                report.state = State::Unfinished;
            }
            Some(CustodyEvent::Stopped { .. }) => report.state = State::Stopped,
            Some(CustodyEvent::Finished(finished)) => {
                report.state = State::Finished;
                report.finished = Some(FinishedAt { place, time: record.time.clone(), finished: *finished });
            }
            Some(CustodyEvent::Triaged(triaged)) => {
                report.state = State::Finished;
                report.triaged = Some(*triaged);
            }
            Some(CustodyEvent::AcceptedUnverified { .. } | CustodyEvent::KeyLent(_) | CustodyEvent::Kept { .. })
                if report.state == State::Empty =>
            {
                report.state = State::Use;
            }
            Some(CustodyEvent::Destroyed { .. }) => {
                report.destroyed = true;
                if report.state == State::Empty {
                    report.state = State::Unfinished;
                }
            }
            Some(CustodyEvent::Wiped(receipt)) => {
                let line = report.lines;
                report.wipes.add(line, *receipt, record.credential.as_ref().map(|acting| acting.room.as_str()));
            }
            Some(
                CustodyEvent::AcceptedUnverified { .. }
                | CustodyEvent::KeyLent(_)
                | CustodyEvent::Kept { .. }
                | CustodyEvent::Verified(_)
                | CustodyEvent::RedundancyCompared(_)
                | CustodyEvent::Doubts { .. },
            ) if report.state == State::Use => {}
            _ if matches!(report.state, State::Empty | State::Use) => report.state = State::Unfinished,
            _ => {}
        }
    }

    /// Checks whether this is the record that belongs where accepting ended.
    fn look_for_what_is_missing(&mut self, parsed: &Parsed<'_>) {
        let belongs = parsed.record.seq == self.next_seq() && parsed.prev == self.link;
        let good = belongs && self.signature(parsed) == Signature::Good;
        let Some(bad) = &mut self.bad else { return };
        if good {
            bad.expected_at.get_or_insert(self.report.lines);
        }
        bad.again |= bad.record.as_ref().is_some_and(|misfit| misfit.seq == parsed.record.seq);
    }

    fn finish(mut self) -> CheckedLog {
        // An interrupted write leaves the beginning of the next record, without a newline. Anything else is tampering.
        if self.bad.is_none() && self.broken > 0 && (self.ended || !self.broken_begins_the_next_record()) {
            let line = self.report.lines - self.broken + 1;
            self.bad = Some(FirstBadLine { line, record: None, expected_at: None, again: false });
        }
        if let Some(bad) = &self.bad {
            let (fault, why) = bad.diagnose(self.next_seq());
            self.report.problem = Some(Problem { line: bad.line, fault, why });
        } else if self.broken > 0 {
            let line = self.report.lines - self.broken + 1;
            self.report.unfinished_line = Some(UnfinishedLine { line, bytes: self.bytes - self.whole_bytes });
            if self.broken > 1 {
                // Earlier versions left several; one interrupted write of this version leaves one.
                self.report.state = State::Unfinished;
            }
        }
        CheckedLog {
            prev: self.link,
            whole_bytes: self.whole_bytes,
            open_line: !self.ended && self.broken == 0,
            key: self.last_key,
            report: self.report,
        }
    }
}

/// Keeps the last verification and the last comparison, until the content becomes another.
fn note_verification(report: &mut LogReport, event: Option<&CustodyEvent>, time: &str) {
    match event {
        Some(CustodyEvent::Verified(verified)) => {
            report.verified = Some(VerifiedAt { time: time.to_owned(), verified: (**verified).clone() });
        }
        Some(CustodyEvent::RedundancyCompared(compared)) => {
            // Content that was rewritten was not verified since.
            report.verified = report.verified.take().filter(|_| compared.data_pages_repaired == 0);
            report.compared = Some((**compared).clone());
        }
        Some(
            CustodyEvent::Started(_)
            | CustodyEvent::Resumed { .. }
            | CustodyEvent::Finished(_)
            | CustodyEvent::Refetched { .. }
            | CustodyEvent::AcceptedUnverified { .. }
            | CustodyEvent::Kept { .. }
            | CustodyEvent::Wiped(_)
            | CustodyEvent::Destroyed { .. },
        ) => (report.verified, report.compared) = (None, None),
        _ => {}
    }
}

impl Checker<'_> {
    /// Whether the lines after the last record may be what an interrupted write of the next record left.
    fn broken_begins_the_next_record(&self) -> bool {
        let next = format!("{{\"seq\":{},", self.next_seq());
        // After a power cut, some file systems leave zeros for bytes that were never written.
        let written = self.broken_begins.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let begins = &self.broken_begins[..written.min(next.len())];
        next.as_bytes().starts_with(begins) && self.bytes - self.whole_bytes <= LINE_BYTES_MAX as u64
    }
}

impl FirstBadLine {
    /// Returns the kind of problem, where record `expected` belongs.
    fn diagnose(&self, expected: u64) -> (Fault, String) {
        let signed = |record: &&BrokenLink| record.signature != Signature::Bad;
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

impl BrokenLink {
    fn diagnose(&self, expected: u64) -> (Fault, String) {
        let Self { seq, key, .. } = self;
        match self.signature {
            Signature::Bad => (Fault::Altered, "its signature does not match".into()),
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
                (Fault::Removed, "it counts unfinished lines before it, and there are none".into())
            }
            Signature::Good => {
                (Fault::Inserted, "it does not refer to the record before it: it belongs to another log".into())
            }
        }
    }
}
