//! The MFT: which bytes of the volume are which of its records.

use std::collections::BTreeMap;

use cheetah_device::ByteRange;

use crate::survey::Ranges;

/// Records that are held at a time because only a part of each has arrived. Where clusters are smaller than records, one
/// may lie across two runs.
const SPLIT_MAX: usize = 1024;

/// Where the MFT lies, and what has arrived of it only in part.
#[derive(Debug, Default)]
pub(super) struct Table {
    record_bytes: u64,
    /// Its runs by their start on the volume, with their end there, and their start in the MFT. None overlap.
    runs: BTreeMap<u64, (u64, u64)>,
    mapped: Ranges,
    /// What of it was looked at.
    seen: Ranges,
    split: BTreeMap<u64, Split>,
    /// The record that is looked at.
    record: Vec<u8>,
}

/// A record of which some has arrived.
#[derive(Debug)]
struct Split {
    bytes: Vec<u8>,
    missing: usize,
}

impl Table {
    /// A table of records of so many bytes, which lies nowhere yet.
    pub(super) fn new(record_bytes: u64) -> Self {
        Self { record_bytes, ..Self::default() }
    }

    /// The bytes from `at` on lie at `range`. What lies where something of it lies already is left out.
    pub(super) fn add(&mut self, at: u64, range: ByteRange) {
        for part in self.mapped.add(range) {
            let at = at.saturating_add(part.offset - range.offset);
            self.runs.insert(part.offset, (part.end(), at));
        }
    }

    /// Shows each record that `bytes`, which were read at `range`, completes: its number, and a copy of it. Bytes that were
    /// here before are not looked at again.
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

    /// The same, of bytes from `at` on in the MFT.
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
            // Most of what is not in use was never written.
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

    /// Puts together a record of which `bytes` are those from `at` on.
    fn join(&mut self, number: u64, at: usize, bytes: &[u8], each: &mut impl FnMut(u64, &mut [u8])) {
        let record_bytes = self.record_bytes as usize;
        if self.split.len() >= SPLIT_MAX && !self.split.contains_key(&number) {
            tracing::debug!("MFT record {number} lies in pieces, as do too many; left out");
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
        /// Records are whole and each is seen once, wherever runs and reads are cut and in whatever order they arrive.
        #[test]
        fn puts_together_what_was_cut(cuts in prop::collection::vec((1..7_u64, any::<u16>()), 1..20), piece in 1..2000_u64) {
            let mut table = Table::new(1024);
            let (mut at, mut reads) = (0, Vec::new());
            // Runs of some 512 bytes each, in their order or not, with gaps.
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
