//! The units whose stamps changed since the record was stored.

use std::ops::Range;

/// Ranges are not joined before there are this many.
const UNJOINED_MIN: usize = 1024;

/// A set of units. It takes memory for the units in it, however often they were added.
#[derive(Default, Clone)]
pub(super) struct Changed {
    /// In any order; they may overlap.
    ranges: Vec<Range<u64>>,
    /// The number of ranges when they were joined last.
    joined: usize,
}

impl Changed {
    /// Adds units.
    pub fn add(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(last) if last.start <= range.start && range.end <= last.end => {}
            _ => self.ranges.push(range),
        }
        if self.ranges.len() >= 2 * self.joined.max(UNJOINED_MIN) {
            self.join();
        }
    }

    /// Adds the units of another set.
    pub fn add_all(&mut self, other: Self) {
        other.ranges.into_iter().for_each(|range| self.add(range));
    }

    /// The units in rising order, each once.
    pub fn into_units(mut self) -> impl Iterator<Item = u64> {
        self.join();
        self.ranges.into_iter().flatten()
    }

    fn join(&mut self) {
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|next, last| {
            let continues = next.start <= last.end;
            last.end = if continues { last.end.max(next.end) } else { last.end };
            continues
        });
        self.joined = self.ranges.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_change_often_take_no_more_memory_and_are_returned_once() {
        let mut changed = Changed::default();
        for round in 0..100_000 {
            changed.add(round % 7 * 3..round % 7 * 3 + 2);
        }
        assert!(changed.ranges.len() <= 2 * UNJOINED_MIN);
        let units: Vec<u64> = changed.into_units().collect();
        assert_eq!(units, [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19]);
    }
}
