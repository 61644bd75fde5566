//! What is reported of an acquisition that is done.

mod text;

use std::path::PathBuf;

use cheetah_image::{CaseData, HashKind, Hashes, Identity};
use serde::Serialize;

use crate::acquire::{Form, Wire};
use crate::journal::Opening;
use crate::reader::Bad;

/// What was acquired, from what, into what, and how it went. As text: `Display`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The program and its version.
    pub tool: String,
    /// The source, as it was found.
    pub source: Identity,
    /// What the examiner says of the case.
    pub case: CaseData,
    /// Bytes acquired.
    pub size: u64,
    /// Hashes of them; zeros stand for what could not be read.
    pub hashes: Hashes,
    /// Hashes that the source claims for itself, and does not have.
    pub hashes_differing: Vec<HashDiffers>,
    /// What could not be read, in order, neighbours merged.
    pub unreadable: Vec<Bad>,
    /// Bytes of these.
    pub unreadable_bytes: u64,
    /// Reads that had to be repeated.
    pub retries: u64,
    /// How often reading was interrupted: the command ended and was run again, or the source was lost and opened again.
    pub interruptions: u64,
    /// How often a connection to the source was lost.
    pub reconnects: u64,
    /// Every time that the source was opened again, and how it was known to be the same.
    pub openings: Vec<Opening>,
    /// What must be known of that, a sentence each: what the examiner vouched for, and how much may differ.
    pub notes: Vec<String>,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// When it was done, RFC 3339, UTC.
    pub finished: String,
    /// Seconds at work, without interruptions.
    pub duration_s: f64,
    /// Bytes acquired a second at work.
    pub rate_bytes_s: u64,
    /// What went over the link since the last interruption, if there is a link.
    pub wire: Option<Wire>,
    /// What it was acquired into.
    pub sinks: Vec<SinkReport>,
}

/// One destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SinkReport {
    /// As the examiner named it.
    pub destination: String,
    /// What it is.
    pub form: Form,
    /// The files it consists of.
    pub files: Vec<PathBuf>,
    /// Bytes they take on the disk, or for a drive, in the memory of the nodes.
    pub stored_bytes: u64,
    /// The coverage map beside it, if it is not whole.
    pub map: Option<PathBuf>,
    /// The custody log beside it, if one is kept.
    pub custody: Option<PathBuf>,
    /// Whether it was read back and is as acquired; `None` if that was not asked for.
    pub verified: Option<bool>,
    /// Hashes made again when it was read back; none where only the digests of its chunks were compared.
    pub verified_hashes: Hashes,
    /// What is wrong with it, a sentence each.
    pub problems: Vec<String>,
}

/// A hash the source claims and does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HashDiffers {
    /// `md5`, `sha1` …
    pub hash: &'static str,
    /// What the source says.
    pub claimed: String,
    /// What was read.
    pub read: String,
}

impl Report {
    /// Whether every byte was read, and everything that was compared is as it should be (exit code 0, otherwise 3).
    pub fn is_whole(&self) -> bool {
        self.problems().is_empty()
    }

    /// Everything that is wrong, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.unreadable_bytes > 0 {
            problems.push(format!(
                "{} bytes in {} ranges could not be read; they are recorded as unreadable, and zeros stand for them",
                self.unreadable_bytes,
                self.unreadable.len()
            ));
        }
        problems.extend(self.hashes_differing.iter().map(|differs| {
            let HashDiffers { hash, claimed, read } = differs;
            format!("the source claims the {hash} {claimed}, what was read of it has {read}")
        }));
        problems.extend(self.sinks.iter().flat_map(|sink| sink.problems.iter().cloned()));
        problems
    }

    /// The hashes in `claimed` that differ from `read`.
    pub(crate) fn differing(claimed: &Hashes, read: &Hashes) -> Vec<HashDiffers> {
        let differs = |kind: HashKind| {
            let (claimed, read) = claimed.get(kind).zip(read.get(kind))?;
            (claimed != read).then(|| HashDiffers { hash: kind.name(), claimed: claimed.into(), read: read.into() })
        };
        HashKind::ALL.into_iter().filter_map(differs).collect()
    }
}
