//! Reads a whole image and compares it with its records: the custody log, the coverage map, and the hashes in the
//! image.

use std::path::{Path, PathBuf};

use cheetah_device::coverage::State as Covered;
use cheetah_device::{DynDevice, Size};
use cheetah_error::Result;
use cheetah_image::coverage::{map_path, read_map};
use cheetah_image::{HashChoice, HashKind, Hashes, Source};
use serde::Serialize;

use super::event::{Span, Verified};
use super::key::PublicKey;
use super::log::CustodyLog;
use super::read::{Damage, read_in_full};
use super::report::LogReport;
use super::verify_log;

/// How to verify an image.
#[derive(Debug, Clone, Default)]
pub struct AuditOptions {
    /// The hashes to compute, of those recorded; of all kinds if none is recorded.
    pub hashes: HashChoice,
    /// The trusted keys.
    pub trusted: Vec<PublicKey>,
}

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// Bytes in the image.
    pub size: u64,
    /// Its hashes; none if a part of it is damaged.
    pub hashes: Hashes,
    /// The comparisons with recorded hashes.
    pub compared: Vec<Comparison>,
    /// Ranges that were unreadable when the image was made. Hashes are made with zeros for them.
    pub unreadable: Vec<Span>,
    /// Ranges that were never read when the image was made.
    pub unread: Vec<Span>,
    /// Ranges of the image that cannot be read any more.
    pub damaged: Vec<Damage>,
    /// The path of its custody log, if it has one.
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
}

/// A comparison with a recorded hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
            problems: self.problems.clone(),
        }
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
    let log = log_path.as_deref().map(|path| verify_log(path, &options.trusted)).transpose()?;
    let map = path.map(map_path).map(|path| read_map(&path)).transpose()?.flatten();
    let finished = log.as_ref().and_then(|log| log.finished.as_ref()).map(|at| &at.finished);
    let recorded: Vec<_> =
        [("custody log", finished.map(|finished| &finished.hashes)), ("image", Some(&identity.hashes))]
            .into_iter()
            .filter_map(|(place, hashes)| Some((place, hashes?)))
            .collect();
    let wanted =
        recorded.iter().flat_map(|(_, hashes)| hashes.iter()).fold(HashChoice::NONE, |all, (kind, _)| all.with(kind));
    let wanted = if wanted == HashChoice::NONE { HashChoice::ALL } else { wanted };
    let mut audit = read(&source.device, wanted & options.hashes, progress).await?;
    audit.unreadable.extend(identity.unreadable.iter().map(|range| Span::from(*range)));
    if let Some(map) = &map {
        audit.unreadable.extend(map.in_state(Covered::Unreadable).map(Span::from));
        audit.unread.extend(map.in_state(Covered::Unread).map(Span::from));
    }
    audit.unreadable = union(audit.unreadable);
    audit.compared = recorded.iter().flat_map(|(place, hashes)| compare(&audit.hashes, place, hashes)).collect();
    audit.problems.extend(audit.changes());
    if let Some(map) = map.filter(|map| map.size() != audit.size) {
        let (map, size) = (Size(map.size()), Size(audit.size));
        audit.problems.push(format!("the coverage map beside the image is of {map}, the image has {size}"));
    }
    if let Some(finished) = finished.filter(|finished| finished.size != audit.size) {
        let (then, now) = (finished.size, audit.size);
        audit.problems.push(format!("the image has {now} bytes; when it was finished it had {then}"));
    }
    audit.problems.extend(log.iter().flat_map(LogReport::problems).map(|problem| format!("custody log: {problem}")));
    audit.unchanged = audit.problems.is_empty();
    audit.problems.splice(0..0, audit.gaps());
    (audit.log_path, audit.log) = (log_path, log);
    Ok(audit)
}

async fn read(device: &DynDevice, hashes: HashChoice, progress: impl FnMut(u64) + Send) -> Result<Audit> {
    let read = read_in_full(device, hashes, progress).await?;
    Ok(Audit {
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
