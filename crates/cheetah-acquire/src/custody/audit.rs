//! An image read in full, and compared with what was recorded when it was made: in its custody log, in its coverage
//! map, and in the image itself.

use std::path::{Path, PathBuf};

use cheetah_device::coverage::State as Covered;
use cheetah_device::{DynDevice, Size};
use cheetah_image::coverage::{map_path, read_map};
use cheetah_image::{HashChoice, HashKind, Hashes, Result, Source};
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
    /// Hashes to make again, of those recorded; all of them where none is recorded.
    pub hashes: HashChoice,
    /// Keys whose logs are believed.
    pub trusted: Vec<PublicKey>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// Bytes in the image.
    pub size: u64,
    /// Hashes made of it; none if a part of it is damaged.
    pub hashes: Hashes,
    /// Each of these beside what was recorded.
    pub compared: Vec<Comparison>,
    /// Ranges that could not be read when the image was made, or that it says so of. Zeros stand for them in the hashes.
    pub unreadable: Vec<Span>,
    /// Ranges that were not read when the image was made.
    pub unread: Vec<Span>,
    /// Ranges of the image that cannot be read now.
    pub damaged: Vec<Damage>,
    /// Where its custody log is, if it has one.
    pub log_path: Option<PathBuf>,
    /// What is to be said of that.
    pub log: Option<LogReport>,
    /// All that is wrong, a sentence each.
    pub problems: Vec<String>,
}

/// A hash beside one that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// `md5`, `sha1` …
    pub hash: &'static str,
    /// Where it was recorded.
    pub recorded_in: &'static str,
    /// What was recorded.
    pub recorded: String,
    /// Whether the image has it.
    pub same: bool,
}

impl Audit {
    /// Whether the image is as it was made, and was made whole.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// As it goes into the log.
    pub fn verdict(&self) -> Verified {
        let bytes = |spans: &[Span]| spans.iter().map(|span| span.len).sum::<u64>();
        let damaged: u64 = self.damaged.iter().map(|damage| damage.range.len).sum();
        Verified {
            ok: self.is_ok(),
            size: self.size,
            unreadable_bytes: bytes(&self.unreadable) + damaged,
            hashes: self.hashes.clone(),
            digests: false,
            problems: self.problems.clone(),
        }
    }
}

/// Reads the image in full, in one pass, and compares it. `path` is where its log and its map are looked for: `None` for
/// an image that is no file. The source is to be opened without heeding that map
/// ([`heed_map`](cheetah_image::OpenOptions::heed_map)): hashes are of the image with zeros for what it lacks.
/// `progress` is told how many bytes have been read.
///
/// # Errors
///
/// If the image, its log or its map cannot be read for reasons that say nothing about the evidence.
pub async fn audit(
    source: &Source,
    path: Option<&Path>,
    options: &AuditOptions,
    progress: impl FnMut(u64) + Send,
) -> Result<Audit> {
    let identity = &source.identity;
    let log_path = path.map(CustodyLog::path_for).filter(|path| path.exists());
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
    audit.problems.extend(audit.found());
    if let Some(map) = map.filter(|map| map.size() != audit.size) {
        let (map, size) = (Size(map.size()), Size(audit.size));
        audit.problems.push(format!("the coverage map beside the image is of {map}, the image has {size}"));
    }
    if let Some(finished) = finished.filter(|finished| finished.size != audit.size) {
        let (then, now) = (finished.size, audit.size);
        audit.problems.push(format!("the image has {now} bytes; when it was finished it had {then}"));
    }
    audit.problems.extend(log.iter().flat_map(LogReport::problems).map(|problem| format!("custody log: {problem}")));
    (audit.log_path, audit.log) = (log_path, log);
    Ok(audit)
}

async fn read(device: &DynDevice, hashes: HashChoice, progress: impl FnMut(u64) + Send) -> Result<Audit> {
    let found = read_in_full(device, hashes, progress).await?;
    Ok(Audit {
        size: device.geometry().size,
        hashes: found.hashes,
        compared: Vec::new(),
        unreadable: found.unreadable.into_iter().map(Span::from).collect(),
        unread: Vec::new(),
        damaged: found.damaged,
        log_path: None,
        log: None,
        problems: Vec::new(),
    })
}

/// The spans in order, those that touch or overlap as one.
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
    /// What reading and comparing found.
    fn found(&self) -> Vec<String> {
        let differing = self.compared.iter().filter(|one| !one.same);
        let mut problems: Vec<_> =
            differing.map(|one| format!("{} is not what the {} says it was", one.hash, one.recorded_in)).collect();
        let mut spans = |what: &str, spans: &mut dyn Iterator<Item = Span>| {
            let (count, bytes) = spans.fold((0, 0), |(count, bytes), span| (count + 1, bytes + span.len));
            if count > 0 {
                let ranges = if count == 1 { "range" } else { "ranges" };
                problems.push(format!("{} in {count} {ranges} {what}", Size(bytes)));
            }
        };
        spans("cannot be read: the image is damaged", &mut self.damaged.iter().map(|damage| damage.range));
        spans("could not be read when the image was made", &mut self.unreadable.iter().copied());
        spans("were never read: the image is partial", &mut self.unread.iter().copied());
        problems
    }
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
