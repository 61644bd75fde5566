//! The pieces of a source that can be compared. No I/O.

use cheetah_device::ByteRange;

/// Pieces of a source: each begins at a multiple of the unit, and is a unit long, except for the last piece of the
/// source. Kept as runs, since a disk has millions of pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces {
    unit: u64,
    /// Each run, and the number of pieces before it.
    runs: Vec<(ByteRange, u64)>,
}

impl Pieces {
    /// Returns the whole pieces within `ranges`, which are in order and apart, of a source of `size` bytes.
    pub fn within(ranges: impl IntoIterator<Item = ByteRange>, unit: u64, size: u64) -> Self {
        let mut before = 0;
        let mut runs = Vec::new();
        for range in ranges {
            let end = if range.end() == size { size } else { range.end() - range.end() % unit };
            let run = ByteRange::between(range.offset.next_multiple_of(unit), end);
            if !run.is_empty() {
                runs.push((run, before));
                before += run.len.div_ceil(unit);
            }
        }
        Self { unit, runs }
    }

    /// Returns the unit, in bytes.
    pub const fn unit(&self) -> u64 {
        self.unit
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> u64 {
        self.runs.last().map_or(0, |(run, before)| before + run.len.div_ceil(self.unit))
    }

    /// Returns the number of bytes in all pieces.
    pub fn bytes(&self) -> u64 {
        self.runs().map(|run| run.len).sum()
    }

    /// Returns the runs of pieces, in order.
    pub fn runs(&self) -> impl Iterator<Item = ByteRange> {
        self.runs.iter().map(|(run, _)| *run)
    }

    /// Returns a piece by its index; `None` if there are fewer.
    pub fn nth(&self, index: u64) -> Option<ByteRange> {
        let after = self.runs.partition_point(|(_, before)| *before <= index);
        let (run, before) = self.runs.get(after.checked_sub(1)?)?;
        let start = run.offset + (index - before).checked_mul(self.unit)?;
        let piece = ByteRange::between(start, start.saturating_add(self.unit).min(run.end()));
        (!piece.is_empty()).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_those_of_a_walk_over_the_source(size in 1u64..400, cuts in prop::collection::btree_set(0u64..400, 0..12)) {
            let cuts: Vec<u64> = cuts.into_iter().filter(|cut| *cut <= size).collect();
            let ranges: Vec<ByteRange> = cuts.chunks_exact(2).map(|cut| ByteRange::between(cut[0], cut[1])).collect();
            let unit = 16;
            let walk: Vec<ByteRange> = ByteRange::new(0, size)
                .split_at_multiples(unit)
                .filter(|piece| ranges.iter().any(|range| range.contains(*piece)))
                .collect();
            let pieces = Pieces::within(ranges, unit, size);
            prop_assert_eq!(pieces.count(), walk.len() as u64);
            prop_assert_eq!(pieces.bytes(), walk.iter().map(|piece| piece.len).sum::<u64>());
            let found: Vec<_> = (0..pieces.count() + 2).filter_map(|index| pieces.nth(index)).collect();
            prop_assert_eq!(found, walk);
        }
    }
}
