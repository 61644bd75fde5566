//! The MFT: the mapping of ranges of the volume to records.

use std::collections::BTreeMap;

use cheetah_device::ByteRange;

use crate::survey::RangeSet;

/// The maximum number of partially arrived records. With clusters smaller than records, a record may span two runs.
const SPLIT_MAX: usize = 1024;

/// The position of the MFT, and its partially arrived records.
#[derive(Debug, Default)]
pub(super) struct Table {
    record_bytes: u64,
    /// Its runs by start on the volume, with end on the volume and start in the MFT. Runs are disjoint.
    runs: BTreeMap<u64, (u64, u64)>,
    mapped: RangeSet,
    /// The ranges already parsed.
    seen: RangeSet,
    split: BTreeMap<u64, Split>,
    /// The buffer of the current record.
    record: Vec<u8>,
}

/// A partially arrived record.
#[derive(Debug)]
struct Split {
    bytes: Vec<u8>,
    missing: usize,
}

impl Table {
    /// Makes a table of records of `record_bytes`, without runs.
    pub(super) fn new(record_bytes: u64) -> Self {
        Self { record_bytes, ..Self::default() }
    }

    /// Maps the MFT's bytes from `at` to `range`, except where `range` overlaps an earlier run.
    pub(super) fn add(&mut self, at: u64, range: ByteRange) {
        for part in self.mapped.add(range) {
            let at = at.saturating_add(part.offset - range.offset);
            self.runs.insert(part.offset, (part.end(), at));
        }
    }

    /// Calls back with the number and a copy of each record that `bytes`, read at `range`, complete. Bytes are parsed
    /// once.
    pub(super) fn records(&mut self, range: ByteRange, bytes: &[u8], mut each: impl FnMut(u64, &mut [u8])) {
        let first = self.runs.range(..=range.offset).next_back().map_or(range.offset, |(&start, _)| start);
        let runs: Vec<_> = self.runs.range(first..range.end()).map(|(&start, &run)| (start, run)).collect();
        for (start, (end, at)) in runs {
            let Some(both) = ByteRange::between(start, end).intersection(range) else { continue };
            for new in self.seen.add(both) {
                let skip = (new.offset - range.offset) as usize;
                let Some(part) = bytes.get(skip..skip + new.len as usize) else { return };
                self.part(at.saturating_add(new.offset - start), part, &mut each);
            }
        }
    }

    /// The same for bytes at offset `at` of the MFT.
    fn part(&mut self, at: u64, bytes: &[u8], each: &mut impl FnMut(u64, &mut [u8])) {
        if self.record_bytes == 0 {
            return;
        }
        let record_bytes = self.record_bytes as usize;
        let mut number = at / self.record_bytes;
        let inside = (at % self.record_bytes) as usize;
        let mut rest = bytes;
        if inside > 0 {
            let (head, behind) = bytes.split_at(bytes.len().min(record_bytes - inside));
            self.join(number, inside, head, each);
            (rest, number) = (behind, number.saturating_add(1));
        }
        let whole = rest.chunks_exact(record_bytes);
        let tail = whole.remainder();
        for (record, number) in whole.zip(number..) {
            // Most unused records were never written.
            if record.starts_with(b"FILE") {
                self.record.clear();
                self.record.extend_from_slice(record);
                each(number, &mut self.record);
            }
        }
        if !tail.is_empty() {
            self.join(number.saturating_add((rest.len() / record_bytes) as u64), 0, tail, each);
        }
    }

    /// Adds `bytes` at offset `at` of a record.
    fn join(&mut self, number: u64, at: usize, bytes: &[u8], each: &mut impl FnMut(u64, &mut [u8])) {
        let record_bytes = self.record_bytes as usize;
        if self.split.len() >= SPLIT_MAX && !self.split.contains_key(&number) {
            tracing::debug!("MFT record {number} arrives in pieces, like too many others; left out");
            return;
        }
        let split =
            self.split.entry(number).or_insert_with(|| Split { bytes: vec![0; record_bytes], missing: record_bytes });
        if let Some(to) = split.bytes.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
            split.missing = split.missing.saturating_sub(bytes.len());
        }
        if split.missing == 0
            && let Some(mut split) = self.split.remove(&number)
        {
            each(number, &mut split.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Records are complete and reported once, however runs and reads are split and ordered.
        #[test]
        fn records_split_across_runs_and_reads_are_reassembled(cuts in prop::collection::vec((1..7_u64, any::<u16>()), 1..20), piece in 1..2000_u64) {
            let mut table = Table::new(1024);
            let (mut at, mut reads) = (0, Vec::new());
            // Runs of some 512 bytes, sorted or not, with gaps.
            let mut order: Vec<_> = (0..cuts.len()).collect();
            order.sort_by_key(|&run| cuts[run].1);
            for (run, (sectors, _)) in cuts.iter().enumerate() {
                let place = order.iter().position(|&other| other == run).unwrap() as u64;
                let range = ByteRange::new(place * 5000, sectors * 512);
                table.add(at, range);
                reads.extend(range.split_at_multiples(piece).map(|part| (part, at + part.offset - range.offset)));
                at += range.len;
            }
            reads.sort_by_key(|(part, _)| part.offset.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let byte = |at: u64| match at % 1024 { i @ 0..4 => b"FILE"[i as usize], i => (i ^ at >> 10) as u8 };
            let mut seen = Vec::new();
            for (part, at) in reads {
                let bytes: Vec<_> = (at..at + part.len).map(byte).collect();
                table.records(part, &bytes, |number, record| {
                    assert!(record.iter().zip(number * 1024..).all(|(&is, at)| is == byte(at)));
                    seen.push(number);
                });
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..at / 1024).collect::<Vec<_>>());
        }
    }
}
