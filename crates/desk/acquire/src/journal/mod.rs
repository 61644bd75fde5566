//! The journal, from which an interrupted acquisition is resumed.
//!
//! `NAME.acquire` lies beside the first destination during an acquisition, and is removed at the end. It is a text file
//! with a record on each line, and is only appended to:
//!
//! ```text
//! CHECK {"start": …}         the source, the destinations, the options
//! CHECK {"checkpoint": …}    everything before `at` is durable in every destination
//! CHECK {"resume": …}        the command was run again and resumed here
//! CHECK {"lost": …}          the link to the source was lost
//! CHECK {"reopen": …}        the source was opened again, and compared with the acquired data
//! ```
//!
//! `CHECK` is the first 16 digits of the BLAKE3 of the rest of the line. An incomplete record at the end, left by a
//! crash, is cut off; damage anywhere else is an error. A checkpoint holds the digests of the chunks since the last
//! one: 32 bytes for each MiB.
//!
//! The check finds damage, and proves nothing: anyone can compute it. What is resumed from is therefore signed. After each
//! record, the custody logs get the SHA-256 of all of the journal's bytes, and an acquisition is resumed from the part of the
//! journal that the last such record vouches for.

mod bad_record;
mod disk_state;
mod file;

use std::collections::BTreeMap;

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage};
use cheetah_drive::digests::{CHUNK_BYTES, ChunkDigest, Digests};
use cheetah_drive::recognise::{Cause, Opening};
use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result};
use cheetah_image::ewf::write::E01Options;
use cheetah_image::{BadRange, CaseData, HashChoice, HashedStart, Identity};
use serde::{Deserialize, Serialize};

use crate::order::{Destination, Form};

pub use bad_record::BadRecord;
pub use disk_state::{ContentSample, DiskState, FileState};
pub use file::{Journal, Signed, Unread, Witness};

/// The version of the format. Version 1 does not record how the source was recognised, and the custody logs of versions
/// below 3 do not vouch for the journal. Version 3 records nothing of the disks that a volume lies on. Versions above this one are
/// refused.
pub const VERSION: u32 = 4;
/// The maximum number of reopenings that the journal and the report describe.
const OPENINGS_MAX: usize = 10_000;

/// What stands between notes of this program and those of the examiner.
pub const BETWEEN_NOTES: &str = "; ";

/// A record of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalRecord {
    /// The first line.
    Start(Box<Start>),
    /// A checkpoint.
    Checkpoint(Checkpoint),
    /// The command was run again.
    Resume {
        /// When, in seconds since 1970 (UTC).
        at_s: u64,
        /// Whether the source was write-protected then.
        #[serde(default)]
        write_protected: Option<bool>,
        /// How the source was recognised.
        #[serde(default)]
        opening: Option<Box<Opening>>,
    },
    /// The link to the source was lost.
    Lost {
        /// When, in seconds since 1970 (UTC).
        at_s: u64,
    },
    /// The source was opened again after the link to it had been lost.
    Reopen(Box<Opening>),
}

/// How an acquisition began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`VERSION`].
    pub version: u32,
    /// When, in seconds since 1970 (UTC).
    pub at_s: u64,
    /// The source's identity.
    pub source: Identity,
    /// The destinations as the user wrote them.
    pub destinations: Vec<String>,
    /// The names of the hashes of the whole.
    pub hashes: String,
    /// The options of an E01.
    pub e01: E01Options,
    /// The beginning of the notes of its case data that says of which disks the source is a volume, and is not the examiner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted: Option<String>,
    /// The disks that the source lies on, in their order, if it is the content of a volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskState>,
}

impl Start {
    /// Fails, naming the difference, unless `now` has the same parameters. The source's identity is compared elsewhere
    /// ([`known_changes`]).
    pub fn check_same_request(&self, now: &Self) -> Result<()> {
        let differs = |what: &str, then: &dyn std::fmt::Display, now: &dyn std::fmt::Display| {
            Err(Error::misuse(format!("this acquisition was begun with {what} {then}, not {now}"))
                .next(Acquisition::RepeatOrBeginAgain))
        };
        let (then_to, now_to) = (self.destinations.join(" "), now.destinations.join(" "));
        if then_to != now_to {
            return differs("the destinations", &then_to, &now_to);
        }
        if self.hashes != now.hashes {
            return differs("the hashes", &self.hashes, &now.hashes);
        }
        if self.e01.compression != now.e01.compression {
            return differs("the level of compression", &self.e01.compression, &now.e01.compression);
        }
        if self.e01.segment_size != now.e01.segment_size {
            let shown = |size: Option<u64>| size.map_or("the most there is".to_owned(), |size| size.to_string());
            return differs("the segment size", &shown(self.e01.segment_size), &shown(now.e01.segment_size));
        }
        // Whether the disks are others is found when they are compared.
        if self.e01.case != now.e01.case && self.given_case() != now.given_case() {
            return differs("other case data", &"(case number, examiner …)", &"those given now");
        }
        Ok(())
    }

    /// The case data as the examiner gave them.
    fn given_case(&self) -> CaseData {
        let mut case = self.e01.case.clone();
        if let (Some(noted), Some(notes)) = (&self.noted, &case.notes)
            && let Some(rest) = notes.strip_prefix(noted.as_str())
        {
            case.notes = rest.strip_prefix(BETWEEN_NOTES).map(str::to_owned);
        }
        case
    }

    /// Fails if an E01 already states that the source is write-protected, and it no longer is: the statement would be
    /// false for the rest.
    pub fn same_protection(&self, now: &Identity) -> Result<()> {
        let says_so = self.e01.write_blocked && self.source.write_protected == Some(true);
        let is_e01 = |to: &&String| to.parse::<Destination>().is_ok_and(|to| to.form == Form::E01);
        match self.destinations.iter().find(is_e01) {
            Some(e01) if says_so && now.write_protected != Some(true) => Err(Error::failed(format!(
                "{} is not write-protected any more, and {e01} says that it is",
                now.location
            ))
            .next(Acquisition::ProtectOrBeginAgain)),
            _ => Ok(()),
        }
    }

    /// The hashes of the whole.
    pub fn hash_choice(&self) -> Result<HashChoice> {
        self.hashes.parse()
    }
}

/// Returns the known differences between the source as found `then` and `now`, a sentence each; empty if they may be
/// the same. Only a comparison can show that their bytes are the same.
///
/// # Errors
///
/// `Kind::Evidence` if something differs, unless the examiner says that it is the `same_source` nevertheless. A size
/// or a stored hash that differs is an error in any case.
pub fn known_changes(then: &Identity, now: &Identity, same_source: bool) -> Result<Vec<String>> {
    let differences = then.differences(now);
    if let Some(size) = differences.iter().find(|difference| difference.is_final) {
        return Err(changed(&now.location, size));
    }
    let changes: Vec<_> = differences.iter().map(ToString::to_string).collect();
    if changes.is_empty() || same_source {
        return Ok(changes);
    }
    Err(unknown_source(&now.location, &changes.join(", ")))
}

/// The error for a source that may be another one, which the examiner can settle.
pub fn unknown_source(source: &str, why: &str) -> Error {
    Error::evidence(format!("{source} may not be the source this acquisition was begun with: {why}"))
        .next(Acquisition::ConnectOrVouch)
}

/// Returns the differences between two openings of the same source, a sentence each.
pub fn changes(then: &Identity, now: &Identity) -> Vec<String> {
    let protection = |protected: Option<bool>| match protected {
        Some(true) => "write-protected",
        Some(false) => "not write-protected",
        None => "of unknown write protection",
    };
    let facts =
        [(protection(then.write_protected), protection(now.write_protected)), (&*then.location, &*now.location)];
    let differ = facts.into_iter().filter(|(then, now)| then != now);
    differ.map(|(then, now)| format!("it was {then} in the beginning, and is {now} now")).collect()
}

/// Combines the write protection of two openings.
pub const fn both(then: Option<bool>, now: Option<bool>) -> Option<bool> {
    match (then, now) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// The error for a changed source.
pub fn changed(source: &str, how: impl std::fmt::Display) -> Error {
    Error::evidence(format!("{source} is not the source this acquisition was begun with: {how}"))
        .next(Acquisition::ConnectOrBeginAgain)
}

/// States that everything before `at` is durable in every destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Bytes from the start: a multiple of a chunk, or the size of the source.
    pub at: u64,
    /// The digests of the chunks since the last checkpoint.
    #[serde(with = "base64_digests")]
    pub digests: Vec<ChunkDigest>,
    /// The unreadable ranges since the last checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad: Vec<BadRange>,
    /// Repeated reads since the start of the acquisition.
    pub retries: u64,
    /// Lost connections to the source since the start of the acquisition.
    #[serde(default)]
    pub links_lost: u64,
    /// Time at work since the start of the acquisition, without interruptions, in milliseconds.
    pub active_ms: u64,
    /// The hashes that advanced of the files behind a link that the source is read from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<HashedStart>,
    /// The state that each destination resumes from. JSON as text, since only the last one is parsed.
    pub marks: Vec<String>,
}

/// The durable state of an acquisition.
#[derive(Debug, Clone)]
pub struct AcquisitionState {
    /// How it began.
    pub start: Start,
    /// Bytes that are durable.
    pub at: u64,
    /// The digests of the chunks before `at`.
    pub digests: Digests,
    /// The unreadable ranges before `at`, in order; adjacent ones may touch.
    pub bad: Vec<BadRange>,
    /// As in the last checkpoint.
    pub retries: u64,
    /// How often a connection to the source was lost.
    pub links_lost: u64,
    /// As in the last checkpoint.
    pub active_ms: u64,
    /// The hashes of the source's files so far, by index.
    pub files: BTreeMap<usize, HashedStart>,
    /// As in the last checkpoint; `None` if there is none.
    pub marks: Option<Vec<String>>,
    /// How often the command was run again.
    pub resumes: u64,
    /// Every time the source was opened again, in order.
    pub openings: Vec<Opening>,
    /// The agent's process that served the source last, and is known to have served the data acquired before.
    pub instance: Option<String>,
    /// Whether the source was write-protected whenever it was opened.
    pub write_protected: Option<bool>,
}

impl AcquisitionState {
    /// The state before the first checkpoint.
    pub fn new(start: Start) -> Result<Self> {
        let digests = Digests::new(start.source.size)?;
        let write_protected = start.source.write_protected;
        let instance = start.source.server.as_ref().and_then(|server| server.instance.clone());
        Ok(Self {
            start,
            at: 0,
            digests,
            bad: Vec::new(),
            retries: 0,
            links_lost: 0,
            active_ms: 0,
            files: BTreeMap::new(),
            marks: None,
            resumes: 0,
            openings: Vec::new(),
            instance,
            write_protected,
        })
    }

    /// Applies the next record; fails with the reason if it does not fit.
    fn apply(&mut self, record: JournalRecord) -> std::result::Result<(), BadRecord> {
        match record {
            JournalRecord::Start(_) => Err(BadRecord::SecondBeginning),
            JournalRecord::Resume { write_protected, opening, .. } => {
                self.resumes += 1;
                self.write_protected = both(self.write_protected, write_protected);
                opening.into_iter().for_each(|opening| self.reopened(*opening));
                Ok(())
            }
            JournalRecord::Lost { .. } => {
                self.links_lost += 1;
                Ok(())
            }
            JournalRecord::Reopen(opening) => {
                self.write_protected = both(self.write_protected, opening.write_protected);
                self.reopened(*opening);
                Ok(())
            }
            JournalRecord::Checkpoint(checkpoint) => self.advance(checkpoint),
        }
    }

    /// Adds an opening of the source.
    pub fn reopened(&mut self, opening: Opening) {
        self.instance.clone_from(&opening.instance);
        // The list is limited, since a server may be lost every second for weeks.
        if self.openings.len() < OPENINGS_MAX {
            self.openings.push(opening);
        }
    }

    /// Returns how often reading was interrupted: the command ended and was run again, or the source was lost and
    /// opened again.
    pub fn interruptions(&self) -> u64 {
        self.resumes + self.openings.iter().filter(|opening| opening.cause == Cause::Lost).count() as u64
    }

    fn advance(&mut self, checkpoint: Checkpoint) -> std::result::Result<(), BadRecord> {
        let Checkpoint { at, digests, bad, retries, links_lost, active_ms, files, marks } = checkpoint;
        let size = self.start.source.size;
        let new = at.checked_sub(self.at).ok_or(BadRecord::StepBack)?;
        if at > size || at != size && !at.is_multiple_of(CHUNK_BYTES) {
            return Err(BadRecord::WithinChunk);
        }
        if digests.len() as u64 != new.div_ceil(CHUNK_BYTES) {
            return Err(BadRecord::Digests);
        }
        if marks.len() != self.start.destinations.len() {
            return Err(BadRecord::Destinations);
        }
        let step = ByteRange::between(self.at, at);
        if !bad.iter().all(|bad| !bad.range().is_empty() && step.contains(bad.range())) {
            return Err(BadRecord::Unreadable);
        }
        for (chunk, digest) in step.split_at_multiples(CHUNK_BYTES).zip(digests) {
            self.digests.set(chunk.offset, digest);
        }
        self.bad.extend(bad);
        (self.at, self.retries, self.active_ms, self.marks) = (at, retries, active_ms, Some(marks));
        self.links_lost = self.links_lost.max(links_lost);
        self.files.extend(files.into_iter().map(|start| (start.file, start)));
        Ok(())
    }

    /// Returns the ranges that were read, and those that were unreadable.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::new(self.start.source.size);
        coverage.set(ByteRange::new(0, self.at), State::Read);
        self.bad.iter().for_each(|bad| coverage.set(bad.range(), State::Unreadable));
        coverage
    }
}

/// Concatenated digests in base64.
mod base64_digests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use cheetah_drive::digests::ChunkDigest;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(digests: &[ChunkDigest], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD_NO_PAD.encode(digests.as_flattened()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ChunkDigest>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
        let (digests, rest) = bytes.as_chunks();
        if rest.is_empty() { Ok(digests.to_vec()) } else { Err(D::Error::custom("half a digest")) }
    }
}

#[cfg(test)]
mod tests;
