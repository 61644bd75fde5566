//! The fragments of a file, and the places in it at which they meet.

use cheetah_device::ByteRange;

use super::{File, FileRun, Places};
use crate::seam::Overlap;

/// The most fragments of a file whose joints are searched.
pub(super) const FRAGMENTS_MAX: usize = 1 << 20;
/// The most bytes that are scanned at once: those of joints near each other.
const GROUP_BYTES_MAX: u64 = 1 << 20;

/// Fragments that follow each other in the file, and not in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) fragments: Vec<FileRun>,
}

/// Joints near each other, whose bytes are scanned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    /// The bytes that decide about hits across the joints, in the file.
    pub(super) window: ByteRange,
    /// The bytes at which such hits begin, from the first to the last.
    pub(super) own: ByteRange,
    /// The number of joints.
    pub(super) joints: u64,
}

/// The chains of a file with at least one joint, and the number of fragments that were not looked at.
pub(super) fn chains_of(places: &Places, file: usize) -> (Vec<Chain>, u64) {
    let Some(found) = places.files.get(file).filter(|found| found.is_mapped) else { return (Vec::new(), 0) };
    let runs = places.runs_of(file);
    let (mut chains, mut chain) = (Vec::new(), Vec::<FileRun>::new());
    for run in runs.iter().take(FRAGMENTS_MAX) {
        let [first, last] = own_edges(places, found, *run);
        push(&mut chains, &mut chain, first);
        if last.range.len > 0 {
            push(&mut chains, &mut chain, last);
        }
    }
    end(&mut chains, &mut chain);
    (chains, runs.len().saturating_sub(FRAGMENTS_MAX) as u64)
}

/// Goes on with a chain, if a fragment follows its last one in the file, or begins another one.
fn push(chains: &mut Vec<Chain>, chain: &mut Vec<FileRun>, fragment: FileRun) {
    let follows = chain.last().is_some_and(|last| last.file_offset + last.range.len == fragment.file_offset);
    if !follows || fragment.range.len == 0 {
        end(chains, chain);
    }
    if fragment.range.len == 0 {
        return;
    }
    match chain.last_mut() {
        Some(last) if last.range.end() == fragment.range.offset => last.range.len += fragment.range.len,
        _ => chain.push(fragment),
    }
}

/// The beginning of a run as far as it has content of its file, and its end if something else lies between. The clusters of a deleted file
/// may be in use again, each of them; what lies between two that are has no joint.
fn own_edges(places: &Places, file: &File, run: FileRun) -> [FileRun; 2] {
    let content = ByteRange::between(run.file_offset, file.valid_bytes);
    let len = run.range.len.min(content.len);
    let part = |skipped: u64, len: u64| FileRun {
        file_offset: run.file_offset + skipped,
        range: ByteRange::new(run.range.offset + skipped, len),
    };
    let may_be_reused = file.is_deleted && !file.is_resident && len > 0;
    let volume = if may_be_reused { places.volume(file.volume) } else { None };
    match volume.and_then(|volume| volume.free.free_edges(ByteRange::new(run.range.offset, len))) {
        Some((first, last)) if first < len => [part(0, first), part(len - last, last)],
        _ => [part(0, len), part(len, 0)],
    }
}

fn end(chains: &mut Vec<Chain>, chain: &mut Vec<FileRun>) {
    let fragments = std::mem::take(chain);
    if fragments.len() > 1 {
        chains.push(Chain { fragments });
    }
}

impl Chain {
    /// Its range in the file.
    pub(super) fn range(&self) -> ByteRange {
        let begin = self.fragments.first().map_or(0, |first| first.file_offset);
        let end = self.fragments.last().map_or(begin, |last| last.file_offset + last.range.len);
        ByteRange::between(begin, end)
    }

    /// Its joints, as groups.
    pub(super) fn groups(&self, overlap: Overlap) -> Vec<Group> {
        let whole = self.range();
        let mut groups = Vec::<Group>::new();
        let mut before = whole.offset;
        for joint in self.fragments.iter().skip(1).map(|fragment| fragment.file_offset) {
            let own = ByteRange::between(joint.saturating_sub(overlap.after as u64).max(before), joint);
            before = joint;
            let window = ByteRange::between(
                own.offset.saturating_sub(overlap.before as u64).max(whole.offset),
                joint.saturating_add(overlap.after as u64).min(whole.end()),
            );
            match groups.last_mut() {
                Some(last)
                    if window.offset <= last.window.end() && window.end() - last.window.offset <= GROUP_BYTES_MAX =>
                {
                    last.window = ByteRange::between(last.window.offset, window.end().max(last.window.end()));
                    last.own = ByteRange::between(last.own.offset, own.end());
                    last.joints += 1;
                }
                _ => groups.push(Group { window, own, joints: 1 }),
            }
        }
        groups
    }

    /// Whether bytes of the file lie in several fragments.
    pub(super) fn crosses(&self, bytes: ByteRange) -> bool {
        let next = self.fragments.partition_point(|fragment| fragment.file_offset <= bytes.offset);
        self.fragments.get(next).is_some_and(|fragment| fragment.file_offset < bytes.end())
    }

    /// Where bytes of the file lie in the source, in the order of the file.
    pub(super) fn places(&self, bytes: ByteRange) -> Vec<ByteRange> {
        let first =
            self.fragments.partition_point(|fragment| fragment.file_offset + fragment.range.len <= bytes.offset);
        let rest = self.fragments.get(first..).unwrap_or_default();
        let held = |fragment: &FileRun| {
            let in_file = ByteRange::new(fragment.file_offset, fragment.range.len).intersection(bytes)?;
            let skipped = in_file.offset - fragment.file_offset;
            Some(ByteRange::new(fragment.range.offset + skipped, in_file.len))
        };
        rest.iter().map_while(held).collect()
    }
}
