//! How far a search has come, as its journal says. No I/O.

use std::collections::BTreeMap;

use cheetah_carve::{CarvedFile, Counts as CarveCounts, Format, Progress};
use cheetah_device::coverage::State as Reach;
use cheetah_device::{ByteRange, Coverage, coalesce};
use cheetah_search::Truncations;
use cheetah_search::seam::Overlap;

use super::keep::KeptFile;
use super::near::Near;
use super::record::{BadRecord, CarvedFiles, CarvedRow, InsidePlaces, SearchedRange};
use super::start::Start;
use crate::search::inside::{Counts, Searched};

/// The most groups, and the most carved files, that are kept in memory.
const GROUPS_MAX: usize = 16 << 20;
const FILES_MAX: usize = 10_000_000;
/// The most names of nodes and of reasons.
const NEAR_MAX: usize = 10_000;
/// The length of a SHA-256 in hexadecimal digits.
const SHA256_DIGITS: usize = 64;

/// Where a group of records is in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The offset of its first line.
    pub at: u64,
    /// The check before it.
    pub before: [u8; 16],
}

/// A range whose results are in a group of records.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Where it ends.
    pub end: u64,
    /// The group.
    pub place: Place,
}

/// How far a search has come.
#[derive(Debug, Clone)]
pub struct State {
    /// What is searched.
    pub start: Start,
    /// What was searched.
    pub coverage: Coverage,
    /// Where the results are, by the offsets of their ranges.
    pub stretches: BTreeMap<u64, Stretch>,
    /// What was searched where.
    pub near: Option<Near>,
    /// How far compressed data were searched.
    pub inside: InsidePlaces,
    /// What of the source was searched only partly, because compressed data were.
    pub truncated: Truncations,
    /// The groups of hits in compressed data, in order.
    pub inside_groups: Vec<Place>,
    /// Headers whose files were carved.
    pub headers: u64,
    /// How far carving has come.
    pub carving: Progress,
    /// The files that were carved.
    pub carved: Vec<CarvedFile>,
    /// The files of the result, if all is done.
    pub finished: Option<Vec<KeptFile>>,
}

impl State {
    /// Nothing is searched yet.
    pub fn new(start: Start) -> Self {
        Self {
            coverage: Coverage::new(start.size_bytes),
            start,
            stretches: BTreeMap::new(),
            near: None,
            inside: InsidePlaces::default(),
            truncated: Truncations::default(),
            inside_groups: Vec::new(),
            headers: 0,
            carving: Progress::default(),
            carved: Vec::new(),
            finished: None,
        }
    }

    /// Whether some of the source was searched.
    pub fn is_begun(&self) -> bool {
        self.coverage.in_state(Reach::Read).next().is_some()
    }

    /// The ranges that are to be searched: those that were not, with the bytes beside them, whose hits may reach into them.
    pub fn todo(&self, overlap: Overlap) -> Vec<ByteRange> {
        let size = self.coverage.size();
        let runs = self.coverage.runs(ByteRange::new(0, size)).filter(|(_, reach)| *reach != Reach::Read);
        let wider = |(run, _): (ByteRange, Reach)| {
            let begin = run.offset.saturating_sub(overlap.after as u64);
            ByteRange::between(begin, run.end().saturating_add(overlap.before as u64).min(size))
        };
        runs.map(wider).collect()
    }

    /// Applies a range that is done, whose group is at this place.
    pub fn searched(&mut self, record: &SearchedRange, place: Place) -> Result<(), BadRecord> {
        let range = ByteRange::new(record.offset, record.len);
        if range.is_empty() || !range.fits(self.coverage.size()) {
            return Err(BadRecord::Range);
        }
        let (mut at, mut done, mut has_changed) = (range.offset, Vec::new(), false);
        for part in &record.parts {
            let part_range = ByteRange::new(at, part.len);
            let is_node = part.node.is_none_or(|node| node < record.nodes.len());
            let is_part = part.len > 0 && part_range.fits(range.end()) && is_node;
            if !is_part || part.why.is_some() != part.state.is_some_and(|state| state != Reach::Read) {
                return Err(BadRecord::Range);
            }
            if let Some(state) = part.state {
                has_changed |= self.coverage.runs(part_range).any(|(_, reach)| reach != state);
                self.coverage.set(part_range, state);
                done.push(part_range);
            }
            at = part_range.end();
        }
        if at != range.end() {
            return Err(BadRecord::Range);
        }
        if let Some(near) = &record.near {
            if near.node_bytes.len().saturating_add(near.here_bytes.len()) > NEAR_MAX {
                return Err(BadRecord::TooMany);
            }
            self.near = Some(near.clone());
        }
        if has_changed {
            // What is made of the hits is made anew.
            (self.inside, self.headers, self.carving) = (InsidePlaces::default(), 0, Progress::default());
            self.truncated = Truncations::default();
            self.inside_groups.clear();
            self.carved.clear();
        }
        for range in coalesce(done, 0) {
            self.set(range, place);
        }
        if self.stretches.len() > GROUPS_MAX { Err(BadRecord::TooMany) } else { Ok(()) }
    }

    /// The results of a range are in the group at this place.
    fn set(&mut self, range: ByteRange, place: Place) {
        let before = self.stretches.range(..range.offset).next_back().map(|(at, stretch)| (*at, *stretch));
        if let Some((at, stretch)) = before.filter(|(_, stretch)| stretch.end > range.offset) {
            self.stretches.insert(at, Stretch { end: range.offset, ..stretch });
            if stretch.end > range.end() {
                self.stretches.insert(range.end(), stretch);
            }
        }
        let within: Vec<_> = self.stretches.range(range.offset..range.end()).map(|(at, _)| *at).collect();
        for stretch in within.iter().filter_map(|at| self.stretches.remove(at)).collect::<Vec<_>>() {
            if stretch.end > range.end() {
                self.stretches.insert(range.end(), stretch);
            }
        }
        self.stretches.insert(range.offset, Stretch { end: range.end(), place });
    }

    /// Applies compressed data that are done, whose group is at this place.
    pub fn inside(&mut self, record: InsidePlaces, place: Place) -> Result<(), BadRecord> {
        let last = &self.inside;
        let mut counts = record.counts.iter().zip(&last.counts);
        let is_further = record.places >= last.places && record.work_bytes >= last.work_bytes;
        if !is_further || !counts.all(|(now, then)| now >= then) {
            return Err(BadRecord::Number);
        }
        if self.inside_groups.len() >= GROUPS_MAX {
            return Err(BadRecord::TooMany);
        }
        let size = self.coverage.size();
        let truncated: Option<Vec<_>> = record.truncated.iter().map(|row| row.truncation(size)).collect();
        truncated.ok_or(BadRecord::Range)?.into_iter().for_each(|truncation| self.truncated.push(truncation));
        if record.hits > 0 {
            self.inside_groups.push(place);
        }
        self.inside = InsidePlaces { truncated: Vec::new(), ..record };
        Ok(())
    }

    /// How far compressed data were searched.
    pub fn inside_searched(&self) -> Searched {
        Searched { places: self.inside.places, work_bytes: self.inside.work_bytes }
    }

    /// What became of compressed data.
    pub fn inside_counts(&self) -> Counts {
        counts_of(self.inside.counts)
    }

    /// Applies headers whose files are carved.
    pub fn carved(&mut self, record: &CarvedFiles) -> Result<(), BadRecord> {
        if record.headers < self.headers {
            return Err(BadRecord::Number);
        }
        if self.carved.len().saturating_add(record.files.len()) > FILES_MAX {
            return Err(BadRecord::TooMany);
        }
        for row in &record.files {
            self.carved.push(self.file(row).ok_or(BadRecord::File)?);
        }
        let [end_of_whole, end_of_framed, end_of_chain, wasted_bytes] = record.progress;
        let [files, bytes, inside, invalid, unreadable, given_up] = record.counts;
        let counts = CarveCounts { files, bytes, inside, invalid, unreadable, given_up };
        let archive = record.archive;
        self.carving = Progress { end_of_whole, end_of_framed, end_of_chain, archive, wasted_bytes, counts };
        self.headers = record.headers;
        Ok(())
    }

    /// Applies files of the result of a search that is done.
    pub fn finish(&mut self, files: Vec<KeptFile>) -> Result<(), BadRecord> {
        let all = self.finished.get_or_insert_default();
        if all.len().saturating_add(files.len()) > FILES_MAX {
            return Err(BadRecord::TooMany);
        }
        all.extend(files);
        Ok(())
    }

    /// A file that was carved after those before it.
    fn file(&self, CarvedRow(offset, len, format, sha256): &CarvedRow) -> Option<CarvedFile> {
        let format = Format::of_name(format)?;
        // Two formats may begin at one place.
        let is_after = self
            .carved
            .last()
            .is_none_or(|last| last.offset < *offset || last.offset == *offset && last.format != format);
        let is_within = *len > 0 && ByteRange::new(*offset, *len).fits(self.coverage.size());
        let is_digest = sha256.len() == SHA256_DIGITS && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        let file = CarvedFile { offset: *offset, len: *len, format, sha256: sha256.clone() };
        (is_after && is_within && is_digest).then_some(file)
    }
}

/// What became of compressed data, of the numbers in a record.
pub fn counts_of(numbers: [u64; 8]) -> Counts {
    let [streams, bytes, hits, cut, damaged, given_up, invalid, unreadable] = numbers;
    Counts { streams, bytes, hits, cut, damaged, given_up, invalid, unreadable }
}

/// The numbers in a record.
pub const fn numbers_of(counts: &Counts) -> [u64; 8] {
    let Counts { streams, bytes, hits, cut, damaged, given_up, invalid, unreadable } = *counts;
    [streams, bytes, hits, cut, damaged, given_up, invalid, unreadable]
}
