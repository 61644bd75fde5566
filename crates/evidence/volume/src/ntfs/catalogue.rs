//! A compact form of the MFT's records, kept until all of them were read.

use cheetah_device::ByteRange;
use smallvec::SmallVec;

use super::boot::Boot;
use super::first_bytes;
use super::record::{FileName, NonResident};
use crate::survey::FileRuns;

/// The maximum number of names, and thereby of files.
const NAMES_MAX: usize = 1 << 20;
const TEXT_BYTES_MAX: usize = 64 << 20;
/// The maximum number of runs, of 16 bytes each.
const RUNS_MAX: usize = 4 << 20;
/// The maximum size of an index; The Sleuth Kit refuses a larger one.
const INDEX_BYTES_MAX: u64 = 128 << 20;
/// The root directory's record.
const ROOT: u32 = 5;
/// The first record that is not a system file.
const FIRST_FILE: u32 = 24;

/// Files and directories, unsorted.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    names: Vec<Name>,
    /// The concatenated names.
    text: Vec<u8>,
    contents: Vec<Part>,
    indexes: Vec<Part>,
    runs: Vec<ByteRange>,
    left_out: u64,
}

/// A file's name in a directory.
#[derive(Debug, Clone, Copy)]
struct Name {
    id: u32,
    parent: u32,
    text: u32,
    len: u16,
    is_directory: bool,
}

/// The part of a file's content or a directory's index that one record describes.
#[derive(Debug, Clone, Copy)]
struct Part {
    id: u32,
    /// The number of its first cluster, by which parts are sorted.
    first: u32,
    /// Its slice of all runs.
    start: u32,
    count: u32,
    /// The end of its last run, as an offset of the attribute.
    end: u64,
    /// The size of the content, from the attribute's first part.
    size: u64,
}

/// The sorted result.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The ranges of the directories' indexes, in the order of a recursive listing.
    pub indexes: Vec<ByteRange>,
    /// Files and directories, directory by directory.
    pub files: Vec<FileRuns>,
}

impl Catalogue {
    /// Adds a name of record `id`.
    pub(super) fn name(&mut self, id: u64, name: FileName<'_>, is_directory: bool) {
        let (Ok(id), Ok(parent)) = (u32::try_from(id), u32::try_from(name.parent)) else { return };
        if self.names.len() >= NAMES_MAX || self.text.len() >= TEXT_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        let text = self.text.len();
        fold(name.name, &mut self.text);
        let len = (self.text.len() - text) as u16;
        self.names.push(Name { id, parent, text: text as u32, len, is_directory });
    }

    /// Adds runs of the content of file `id`.
    pub(super) fn content(&mut self, id: u64, content: NonResident<'_>, boot: &Boot) {
        if let Ok(id) = u32::try_from(id)
            && id >= FIRST_FILE
            && self.contents.len() < 2 * NAMES_MAX
        {
            let part = self.part(id, content, boot);
            self.contents.extend(part);
        }
    }

    /// Adds runs of the index of directory `id`. False if the limit is reached.
    pub(super) fn index(&mut self, id: u64, index: NonResident<'_>, boot: &Boot) -> bool {
        let Ok(id) = u32::try_from(id) else { return false };
        if self.indexes.len() >= NAMES_MAX {
            return false;
        }
        let part = self.part(id, index, boot);
        self.indexes.extend(part);
        part.is_some()
    }

    fn part(&mut self, id: u32, content: NonResident<'_>, boot: &Boot) -> Option<Part> {
        let start = self.runs.len();
        let (mut at, mut end) = (content.first, content.first);
        for run in content.runs() {
            at = at.saturating_add(run.clusters);
            let Some(first) = run.start else { continue };
            let Some(range) = boot.clusters(first, run.clusters) else { break };
            if self.runs.len() >= RUNS_MAX {
                self.left_out += 1;
                break;
            }
            self.runs.push(range);
            end = at;
        }
        let count = self.runs.len() - start;
        // The last byte of compressed content within its cluster is unknown.
        let size = if content.compressed { u64::MAX } else { content.size };
        (count > 0).then(|| Part {
            id,
            first: u32::try_from(content.first).unwrap_or(u32::MAX),
            start: start as u32,
            count: count as u32,
            end: end.saturating_mul(boot.cluster_bytes),
            size,
        })
    }

    /// Sorts everything.
    pub(super) fn list(mut self) -> Listing {
        if self.left_out > 0 {
            tracing::debug!("NTFS: {} names or run lists beyond the limit; left out", self.left_out);
        }
        let text = std::mem::take(&mut self.text);
        let folded = |name: &Name| text.get(name.text as usize..name.text as usize + usize::from(name.len));
        self.names.sort_unstable_by(|a, b| (a.parent, folded(a), a.id).cmp(&(b.parent, folded(b), b.id)));
        self.contents.sort_by_key(|part| (part.id, part.first));
        self.indexes.sort_by_key(|part| (part.id, part.first));
        Listing { indexes: self.walk(), files: self.files() }
    }

    /// The ranges of the indexes in walking order, then those of unreachable directories.
    fn walk(&self) -> Vec<ByteRange> {
        let mut ranges = Vec::new();
        let mut seen = RecordSet::default();
        let mut path = Vec::new();
        let roots = std::iter::once(ROOT).chain(self.indexes.iter().map(|part| part.id));
        for root in roots {
            let mut enter = Some(root);
            loop {
                if let Some(id) = enter.take().filter(|&id| seen.is_new(id)) {
                    self.put_index(id, &mut ranges);
                    path.push(self.children(id).iter());
                }
                let Some(children) = path.last_mut() else { break };
                match children.find(|child| child.is_directory) {
                    Some(child) => enter = Some(child.id),
                    None => drop(path.pop()),
                }
            }
        }
        ranges
    }

    fn put_index(&self, id: u32, ranges: &mut Vec<ByteRange>) {
        let runs = parts_of(&self.indexes, id).iter().flat_map(|part| self.runs_of(part));
        ranges.extend(first_bytes(runs, INDEX_BYTES_MAX));
    }

    /// The entries of a directory, in order.
    fn children(&self, parent: u32) -> &[Name] {
        let start = self.names.partition_point(|name| name.parent < parent);
        let behind = self.names.get(start..).unwrap_or_default();
        behind.get(..behind.partition_point(|name| name.parent == parent)).unwrap_or_default()
    }

    fn files(&self) -> Vec<FileRuns> {
        let mut files = Vec::new();
        let mut seen = RecordSet::default();
        for entries in self.names.chunk_by(|a, b| a.parent == b.parent) {
            for (name, place) in entries.iter().zip(0..) {
                let parts = parts_of(&self.contents, name.id);
                if (name.is_directory || !parts.is_empty()) && seen.is_new(name.id) {
                    let runs = if name.is_directory { SmallVec::new() } else { self.content_of(parts) };
                    if name.is_directory || !runs.is_empty() {
                        files.push(FileRuns { id: name.id.into(), directory: name.parent.into(), place, runs });
                    }
                }
            }
        }
        files
    }

    /// The ranges of a file's content, up to its end.
    fn content_of(&self, parts: &[Part]) -> SmallVec<[ByteRange; 2]> {
        let mut runs: SmallVec<[ByteRange; 2]> = SmallVec::new();
        let size = parts.first().filter(|part| part.first == 0).map_or(u64::MAX, |part| part.size);
        for part in parts {
            runs.extend(self.runs_of(part));
            let mut beyond = part.end.saturating_sub(size);
            while let Some(last) = runs.last_mut().filter(|_| beyond > 0) {
                let cut = beyond.min(last.len);
                (last.len, beyond) = (last.len - cut, beyond - cut);
                if last.is_empty() {
                    runs.pop();
                }
            }
        }
        runs
    }

    fn runs_of(&self, part: &Part) -> impl Iterator<Item = ByteRange> + use<'_> {
        let start = part.start as usize;
        self.runs.get(start..start + part.count as usize).unwrap_or_default().iter().copied()
    }
}

/// The elements of record `id` in a slice sorted by record.
fn parts_of(parts: &[Part], id: u32) -> &[Part] {
    let start = parts.partition_point(|part| part.id < id);
    let behind = parts.get(start..).unwrap_or_default();
    behind.get(..behind.iter().take_while(|part| part.id == id).count()).unwrap_or_default()
}

/// A bit set of record numbers, bounded by the size of the MFT.
#[derive(Debug, Default)]
struct RecordSet {
    bits: Vec<u64>,
}

impl RecordSet {
    /// Inserts a record; returns whether it is new.
    fn is_new(&mut self, id: u32) -> bool {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let Some(word) = self.bits.get_mut(word) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Appends a UTF-16 name in upper case, in an encoding that sorts like UTF-16, the order of directories. ASCII takes
/// half the space.
fn fold(name: &[u8], text: &mut Vec<u8>) {
    for unit in name.as_chunks().0.iter().map(|&unit| u16::from_le_bytes(unit)) {
        let unit = upper(unit);
        match unit {
            0..0x80 => text.push(unit as u8),
            0x80..0x800 => text.extend([0xc0 | (unit >> 6) as u8, 0x80 | (unit & 63) as u8]),
            _ => text.extend([0xe0 | (unit >> 12) as u8, 0x80 | (unit >> 6 & 63) as u8, 0x80 | (unit & 63) as u8]),
        }
    }
}

/// The upper case of a UTF-16 unit. The volume's own table may differ for a few letters; then the predicted position of
/// a file is slightly off.
fn upper(unit: u16) -> u16 {
    if unit < 0x80 {
        return u16::from((unit as u8).to_ascii_uppercase());
    }
    let Some(letter) = char::from_u32(unit.into()) else { return unit };
    let mut upper = letter.to_uppercase();
    match (upper.next().map(|letter| u16::try_from(u32::from(letter))), upper.next()) {
        (Some(Ok(upper)), None) => upper,
        _ => unit,
    }
}
