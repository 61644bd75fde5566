//! The report of an acquisition.

mod text;

use std::path::PathBuf;

use cheetah_custody::{Decrypted, FileRead, Head, VolumeOf};
use cheetah_drive::recognise::Opening;
use cheetah_image::{BadRange, CaseData, HashKind, Hashes, Identity};
use cheetah_source::{LinkCounters, UnlockOutcome};
use serde::Serialize;

use crate::order::Form;

/// The report of a finished acquisition. `Display` gives the text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The program and its version.
    pub tool: String,
    /// The source's identity.
    pub source: Identity,
    /// What is in doubt about the source although it could be read, a sentence each.
    pub doubts: Vec<String>,
    /// What the keys did to the encrypted volumes of the source, if any were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlocked: Option<UnlockOutcome>,
    /// If this is an image of the content of an opened volume: of what it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decrypted: Option<Decrypted>,
    /// If this is an image of the content of another volume that was found in a source: of what it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeOf>,
    /// The files that the source was read from, each with its own hash.
    pub files: Vec<FileRead>,
    /// The case data.
    pub case: CaseData,
    /// Bytes acquired.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Their hashes, with zeros for unreadable ranges.
    pub hashes: Hashes,
    /// Hashes stored in the source that differ from those computed.
    pub hashes_differing: Vec<HashDiffers>,
    /// The ranges that are unreadable, or corrupt in the source, in order, adjacent ones joined.
    pub unreadable: Vec<BadRange>,
    /// Their size in bytes.
    pub unreadable_bytes: u64,
    /// The number of these bytes that are corrupt in the image that is the source, rather than unreadable.
    pub corrupt_bytes: u64,
    /// Reads beyond the first of each chunk: smaller reads around bad sectors, and retries of single sectors.
    pub retries: u64,
    /// How often reading was interrupted: the command ended and was run again, or the source was lost and opened again.
    pub interruptions: u64,
    /// The number of lost connections to the source.
    pub reconnects: u64,
    /// Every time that the source was opened again, and how it was known to be the same.
    pub openings: Vec<Opening>,
    /// Notes on that: what the examiner vouched for, and how much may differ.
    pub notes: Vec<String>,
    /// When the acquisition began, RFC 3339, UTC.
    pub started: String,
    /// When it was finished, RFC 3339, UTC.
    pub finished: String,
    /// Seconds at work, without interruptions.
    pub duration_s: f64,
    /// Bytes acquired a second at work.
    pub rate_bytes_s: u64,
    /// Traffic of the link since the command was run last, if there is a link.
    pub wire: Option<LinkCounters>,
    /// The destinations.
    pub sinks: Vec<SinkReport>,
}

/// One destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SinkReport {
    /// Its name as the examiner wrote it.
    pub destination: String,
    /// Its kind.
    pub form: Form,
    /// Its files.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    #[serde(serialize_with = "cheetah_image::spec::json::list")]
    pub files: Vec<PathBuf>,
    /// Bytes on the disk or, for a drive, in the memory of the nodes.
    pub stored_bytes: u64,
    /// The coverage map beside it, if it is incomplete.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(serialize_with = "cheetah_image::spec::json::option")]
    pub map: Option<PathBuf>,
    /// The custody log beside it, if one is kept.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(serialize_with = "cheetah_image::spec::json::option")]
    pub custody: Option<PathBuf>,
    /// The head of that log before the report was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// Whether it was read back and equals the acquired data; `None` if it was not read back.
    pub verified: Option<bool>,
    /// The hashes computed when it was read back; none where only the digests of its chunks were compared.
    pub verified_hashes: Hashes,
    /// Its problems, a sentence each.
    pub problems: Vec<String>,
}

/// A hash stored in the source that differs from the one computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HashDiffers {
    /// `md5`, `sha1` …
    pub hash: &'static str,
    /// The stored hash.
    pub claimed: String,
    /// The computed hash.
    pub read: String,
}

impl Report {
    /// Returns whether every byte was read and every comparison succeeded (exit code 0, otherwise 3).
    pub fn is_whole(&self) -> bool {
        self.problems().is_empty()
    }

    /// Returns all problems, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (corrupt, are) in [
            (false, "could not be read; they are recorded as unreadable"),
            (true, "are corrupt in the image that is the source; they are recorded as corrupt"),
        ] {
            let (bytes, ranges) = self.bad(corrupt);
            if ranges > 0 {
                problems.push(format!("{bytes} bytes in {ranges} ranges {are}, and zeros stand for them"));
            }
        }
        problems.extend(self.hashes_differing.iter().map(|differs| {
            let HashDiffers { hash, claimed, read } = differs;
            format!("the source claims the {hash} {claimed}, what was read of it has {read}")
        }));
        problems.extend(self.sinks.iter().flat_map(|sink| sink.problems.iter().cloned()));
        problems
    }

    /// The bytes and ranges that are `corrupt` in the source, or else unreadable.
    fn bad(&self, corrupt: bool) -> (u64, usize) {
        let bad = || self.unreadable.iter().filter(|bad| bad.corrupt == corrupt);
        (bad().map(|bad| bad.len).sum(), bad().count())
    }

    /// Returns the hashes in `claimed` that differ from `read`.
    pub(crate) fn differing(claimed: &Hashes, read: &Hashes) -> Vec<HashDiffers> {
        let differs = |kind: HashKind| {
            let (claimed, read) = claimed.get(kind).zip(read.get(kind))?;
            (claimed != read).then(|| HashDiffers { hash: kind.name(), claimed: claimed.into(), read: read.into() })
        };
        HashKind::ALL.into_iter().filter_map(differs).collect()
    }
}
