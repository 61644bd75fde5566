//! A set of bytes.

use std::collections::BTreeMap;

use cheetah_device::ByteRange;
use smallvec::SmallVec;

/// The maximum number of runs, against malicious file systems. They take about 32 MiB of memory.
const RUNS_MAX: usize = 1 << 20;

/// A set of bytes, as runs that neither overlap nor touch: the start and end of each.
#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    runs: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds a range; returns the parts that were not in the set, in order. If the set is full, adds and returns
    /// nothing.
    pub(crate) fn add(&mut self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        let mut new = SmallVec::new();
        if range.is_empty() || self.runs.len() >= RUNS_MAX {
            return new;
        }
        let (mut start, mut end) = (range.offset, range.end());
        let before = self.runs.range(..start).next_back().filter(|&(_, &ends)| ends >= start);
        let first = before.map_or(start, |(&starts, _)| starts);
        let mut at = start;
        let touched: SmallVec<[(u64, u64); 4]> = self.runs.range(first..=end).map(|(&a, &b)| (a, b)).collect();
        for (a, b) in touched {
            new.push(ByteRange::between(at, a.min(end)));
            at = at.max(b);
            (start, end) = (start.min(a), end.max(b));
            self.runs.remove(&a);
        }
        new.push(ByteRange::between(at, range.end()));
        new.retain(|part| !part.is_empty());
        self.runs.insert(start, end);
        new
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn added_parts_are_those_a_bitmap_lacks(added in prop::collection::vec((0_u64..200, 0_u64..40), 0..40)) {
            let mut set = RangeSet::default();
            let mut model = vec![false; 256];
            for (offset, len) in added {
                let range = ByteRange::new(offset, len);
                let new = set.add(range);
                let mut said = vec![false; 256];
                for byte in new.iter().flat_map(|part| part.offset..part.end()) {
                    prop_assert!(!std::mem::replace(&mut said[byte as usize], true), "{byte} twice");
                }
                for byte in range.offset..range.end() {
                    let was = std::mem::replace(&mut model[byte as usize], true);
                    prop_assert_eq!(said[byte as usize], !was, "{}", byte);
                }
                prop_assert!(new.iter().all(|&part| range.contains(part)));
            }
            let runs: Vec<_> = set.runs.iter().collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", runs);
        }
    }
}
