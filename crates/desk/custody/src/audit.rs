//! Reads a whole image and compares it with its records: the custody log, the coverage map, and the hashes in the
//! image.

use std::path::{Path, PathBuf};

use cheetah_device::coverage::State as Covered;
use cheetah_device::{DynDevice, Size};
use cheetah_error::Result;
use cheetah_image::coverage::{map_path, read_map};
use cheetah_image::{HashChoice, HashKind, Hashes, Kind, Source};
use serde::Serialize;

use crate::agreement;
use crate::event::{Finished, Span, Verified};
use crate::log::CustodyLog;
use crate::read::{Damage, read_in_full};
use crate::report::{LogReport, State};
use crate::{Known, verify_log};

/// The name of the log among the records of a hash.
const LOG_SHOWN: &str = "custody log";

/// How to verify an image.
#[derive(Debug, Clone, Default)]
pub struct AuditOptions {
    /// The hashes to compute, of those recorded; of all kinds if none is recorded.
    pub hashes: HashChoice,
    /// What is known of its log.
    pub known: Known,
}

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Audit {
    /// Bytes in the image.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Its hashes; none if a part of it is damaged.
    pub hashes: Hashes,
    /// BLAKE3 of the digests of its chunks, if the digests in its log were to be compared.
    #[serde(skip)]
    root: Option<String>,
    /// The comparisons with recorded hashes.
    pub compared: Vec<Comparison>,
    /// Ranges that were unreadable when the image was made. Hashes are made with zeros for them.
    pub unreadable: Vec<Span>,
    /// Ranges that were never read when the image was made.
    pub unread: Vec<Span>,
    /// Ranges of the image that cannot be read any more.
    pub damaged: Vec<Damage>,
    /// The path of its custody log, if it has one.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(serialize_with = "cheetah_image::spec::json::option")]
    pub log_path: Option<PathBuf>,
    /// The result of checking the log.
    pub log: Option<LogReport>,
    /// Everything that is wrong, a sentence each. Includes ranges that were unreadable or unread when the image was
    /// made.
    pub problems: Vec<String>,
    /// Whether the image is as it was made: no record of it, and no problem of its log, contradicts that. Ranges that
    /// were unreadable or unread when it was made do not count.
    pub unchanged: bool,
    /// Whether the image was compared with a hash or digests that its custody log signed.
    pub compared_with_signed: bool,
}

/// A comparison with a recorded hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// `md5`, `sha1` …
    pub hash: &'static str,
    /// The place of the record.
    pub recorded_in: &'static str,
    /// The recorded digest.
    pub recorded: String,
    /// Whether the image still has it.
    pub same: bool,
}

impl Audit {
    /// Whether the image is unchanged and complete.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns the record for the log.
    pub fn verdict(&self) -> Verified {
        let bytes = |spans: &[Span]| spans.iter().map(|span| span.len).sum::<u64>();
        let damaged: u64 = self.damaged.iter().map(|damage| damage.range.len).sum();
        Verified {
            ok: self.unchanged,
            size: self.size,
            unreadable_bytes: bytes(&self.unreadable) + damaged,
            hashes: self.hashes.clone(),
            digests: false,
            at_nodes_bytes: 0,
            problems: self.problems.clone(),
        }
    }

    /// Whether the result may be signed: the image was compared with something signed, or contradicts it.
    pub fn may_be_signed(&self) -> bool {
        self.compared_with_signed || !self.unchanged
    }
}

/// Reads the whole image in one pass and compares it with its records. Its log and its map are looked for beside
/// `path`: `None` for a source that is not a file. The source must be opened without applying that map
/// ([`apply_map`](cheetah_image::OpenOptions::apply_map)), since hashes are of the image with zeros for missing ranges.
/// `progress` gets the number of bytes read.
///
/// # Errors
///
/// If the image, its log or its map cannot be read, for reasons other than a problem with the evidence.
pub async fn audit(
    source: &Source,
    path: Option<&Path>,
    options: &AuditOptions,
    progress: impl FnMut(u64) + Send,
) -> Result<Audit> {
    let identity = &source.identity;
    let log_path = path.map(CustodyLog::path_for).filter(|path| path.symlink_metadata().is_ok());
    let mut log = log_path.as_deref().map(|path| verify_log(path, &options.known)).transpose()?;
    if let (Some(log), Some(path)) = (&mut log, path) {
        agreement::compare_heads(log, path, identity.case.notes.as_deref());
    }
    let map = path.map(map_path).map(|path| read_map(&path)).transpose()?.flatten();
    // An image keeps its name until the next acquisition to that name is whole.
    let finished = log.as_ref().and_then(|log| log.finished.as_ref().or(log.earlier.as_ref())).map(|at| &at.finished);
    let recorded: Vec<_> = [(LOG_SHOWN, finished.map(|finished| &finished.hashes)), ("image", Some(&identity.hashes))]
        .into_iter()
        .filter_map(|(place, hashes)| Some((place, hashes?)))
        .collect();
    let wanted =
        recorded.iter().flat_map(|(_, hashes)| hashes.iter()).fold(HashChoice::NONE, |all, (kind, _)| all.with(kind));
    let wanted = if wanted == HashChoice::NONE { HashChoice::ALL } else { wanted };
    let wanted = wanted & options.hashes;
    let signed = finished.map(|finished| finished.hashes.choice() & wanted);
    // Digests are compared where no signed hash is: they cost a pass of BLAKE3.
    let root = finished.and_then(|finished| finished.digests.as_ref()).filter(|_| signed == Some(HashChoice::NONE));
    let mut audit = read(&source.device, (wanted, root.is_some()), progress).await?;
    audit.unreadable.extend(identity.unreadable.iter().map(|range| Span::from(*range)));
    if let Some(map) = &map {
        audit.unreadable.extend(map.in_state(Covered::Unreadable).map(Span::from));
        audit.unread.extend(map.in_state(Covered::Unread).map(Span::from));
    }
    audit.unreadable = union(audit.unreadable);
    audit.compared = recorded.iter().flat_map(|(place, hashes)| compare(&audit.hashes, place, hashes)).collect();
    audit.problems.extend(audit.changes());
    audit.compare_with_signed(root);
    if let (Some(log), Some(path)) = (&log, path) {
        audit.problems.extend(disagreements(&audit, (log, finished), source, path));
    }
    if let Some(map) = map.filter(|map| map.size() != audit.size) {
        let (map, size) = (Size(map.size()), Size(audit.size));
        audit.problems.push(format!("the coverage map beside the image is of {map}, the image has {size}"));
    }
    if let Some(finished) = finished.filter(|finished| finished.size != audit.size) {
        let (then, now) = (finished.size, audit.size);
        audit.problems.push(format!("the image has {now} bytes; when it was finished it had {then}"));
    }
    if log.is_none()
        && let Some(path) = path
    {
        let ledger = options.known.ledger.as_ref();
        audit.problems.extend(ledger.and_then(|ledger| ledger.missing(&CustodyLog::path_for(path))));
        audit.problems.extend(agreement::report_without_log(path));
    }
    audit.problems.extend(log.iter().flat_map(LogReport::problems).map(|problem| format!("custody log: {problem}")));
    audit.unchanged = audit.problems.is_empty();
    audit.problems.splice(0..0, audit.gaps());
    (audit.log_path, audit.log) = (log_path, log);
    Ok(audit)
}

/// How the records beside an image differ from its log.
fn disagreements(
    audit: &Audit,
    (log, finished): (&LogReport, Option<&Finished>),
    source: &Source,
    path: &Path,
) -> Vec<String> {
    if log.problem.is_some() {
        return Vec::new();
    }
    let Some(finished) = finished else {
        // The other states are problems of the log itself.
        let ended = matches!(log.state, State::Stopped | State::Use);
        return Vec::from_iter(ended.then(|| {
            "the custody log does not record that an image was finished, and there is one: the end of the log was cut off, \
             or the image is another"
                .to_owned()
        }));
    };
    let mut found = Vec::new();
    if !audit.compared_with_signed {
        found.push("was compared with nothing that its custody log signed: no hash in the log was computed".to_owned());
    }
    let identity = &source.identity;
    let stored = HashKind::Md5;
    if matches!(identity.kind, Kind::E01 | Kind::Ex01) && finished.hashes.get(stored).is_some() {
        found.extend(agreement::hashes(&identity.hashes, &finished.hashes, "last section", [stored]));
    }
    let case = log.signed_case();
    if let (Kind::E01, Some(signed)) = (identity.kind, &case) {
        found.extend(agreement::stored_case(&identity.case, signed));
    }
    let unreadable = audit.unreadable.iter().map(|span| span.len).sum::<u64>();
    if unreadable < finished.unreadable_bytes {
        let signed = finished.unreadable_bytes;
        found.push(format!(
            "lacks a part of its coverage map: {unreadable} bytes are unreadable in it, and {signed} in its custody log"
        ));
    }
    found.extend(agreement::report(path, finished, case.as_ref()));
    found.into_iter().map(|predicate| format!("the image {predicate}")).collect()
}

async fn read(
    device: &DynDevice,
    (hashes, digests): (HashChoice, bool),
    progress: impl FnMut(u64) + Send,
) -> Result<Audit> {
    let read = read_in_full(device, (hashes, digests), progress).await?;
    Ok(Audit {
        root: read.root,
        size: device.geometry().size,
        hashes: read.hashes,
        compared: Vec::new(),
        unreadable: read.unreadable.into_iter().map(Span::from).collect(),
        unread: Vec::new(),
        damaged: read.damaged,
        log_path: None,
        log: None,
        problems: Vec::new(),
        unchanged: true,
        compared_with_signed: false,
    })
}

/// Sorts the spans and merges those that touch or overlap.
fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.offset);
    spans.into_iter().fold(Vec::new(), |mut all: Vec<Span>, span| {
        match all.last_mut() {
            Some(last) if last.offset.saturating_add(last.len) >= span.offset => {
                last.len = last.len.max(span.offset.saturating_add(span.len) - last.offset);
            }
            _ => all.push(span),
        }
        all
    })
}

fn compare(now: &Hashes, recorded_in: &'static str, then: &Hashes) -> Vec<Comparison> {
    let compare = |(kind, recorded): (HashKind, &str)| {
        let same = now.get(kind)?.eq_ignore_ascii_case(recorded);
        Some(Comparison { hash: kind.name(), recorded_in, recorded: recorded.to_owned(), same })
    };
    then.iter().filter_map(compare).collect()
}

impl Audit {
    /// Notes whether a signed hash was compared, and compares the digests with those of the log, `signed`.
    fn compare_with_signed(&mut self, signed: Option<&String>) {
        self.compared_with_signed = self.compared.iter().any(|one| one.recorded_in == LOG_SHOWN);
        if let Some((now, then)) = self.root.as_ref().zip(signed) {
            self.compared_with_signed = true;
            if now != then {
                self.problems
                    .push("the digests of the image's chunks are not those that its custody log says they were".into());
            }
        }
    }

    /// How the image differs from the record.
    fn changes(&self) -> Vec<String> {
        let differing = self.compared.iter().filter(|one| !one.same);
        let mut problems: Vec<_> =
            differing.map(|one| format!("{} is not what the {} says it was", one.hash, one.recorded_in)).collect();
        let damaged: Vec<_> = self.damaged.iter().map(|damage| damage.range).collect();
        problems.extend(total(&damaged, "cannot be read: the image is damaged"));
        problems
    }

    /// The ranges that the image has lacked since it was made.
    fn gaps(&self) -> Vec<String> {
        let unreadable = total(&self.unreadable, "could not be read when the image was made");
        unreadable.into_iter().chain(total(&self.unread, "were never read: the image is partial")).collect()
    }
}

/// A sentence about these ranges together; `None` if there are none.
fn total(spans: &[Span], what: &str) -> Option<String> {
    let bytes = spans.iter().map(|span| span.len).sum();
    let ranges = if spans.len() == 1 { "range" } else { "ranges" };
    (!spans.is_empty()).then(|| format!("{} in {} {ranges} {what}", Size(bytes), spans.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_count_once() {
        let span = |offset, len| Span { offset, len };
        assert_eq!(union(vec![span(8, 4), span(0, 4), span(2, 4), span(6, 1)]), [span(0, 7), span(8, 4)]);
        assert_eq!(union(vec![span(0, u64::MAX), span(1, u64::MAX)]).len(), 1);
    }
}
