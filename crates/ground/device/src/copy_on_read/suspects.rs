//! Ranges that contain something unreadable, to be read again in smaller units.

use std::collections::BTreeMap;

use crate::ByteRange;

/// The units in which a range that cannot be read is retried, in turn, before single sectors. Few, because each failed
/// attempt may take seconds on a failing disk.
const STEPS: [u64; 2] = [64 << 10, 4 << 10];

/// Ranges that failed, and the units in which to retry them. They never overlap.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Lengths and units, by offset.
    runs: BTreeMap<u64, (u64, u64)>,
}

/// Returns the unit in which to retry a range of `len` bytes; `None` for a single sector, which is not retried.
pub(super) fn next_unit(len: u64, sector: u64) -> Option<u64> {
    (len > sector).then(|| STEPS.into_iter().find(|step| *step < len && *step > sector).unwrap_or(sector))
}

impl Suspects {
    /// Adds a range to be retried in pieces cut at multiples of `unit`.
    pub(super) fn add(&mut self, mut range: ByteRange, unit: u64) {
        let before = self.runs.range(..range.offset).next_back().map(|(at, run)| (*at, *run));
        if let Some((at, (len, _))) = before.filter(|(at, (len, same))| at + len == range.offset && *same == unit) {
            range = ByteRange::new(at, len + range.len);
        }
        if let Some((len, _)) = self.runs.get(&range.end()).copied().filter(|(_, same)| *same == unit) {
            self.runs.remove(&range.end());
            range.len += len;
        }
        self.runs.insert(range.offset, (range.len, unit));
    }

    /// Removes and returns the pieces that overlap `range`, each with its unit.
    pub(super) fn take(&mut self, range: ByteRange) -> Vec<(ByteRange, u64)> {
        let before = self.runs.range(..range.offset).next_back().filter(|(at, (len, _))| *at + len > range.offset);
        let hit: Vec<u64> =
            before.into_iter().chain(self.runs.range(range.offset..range.end())).map(|(at, _)| *at).collect();
        let mut taken = Vec::new();
        for at in hit {
            let Some((len, unit)) = self.runs.remove(&at) else { continue };
            let run = ByteRange::new(at, len);
            let Some(part) = run.intersection(range) else { continue };
            let pieces = ByteRange::between(
                (part.offset - part.offset % unit).max(run.offset),
                part.end().next_multiple_of(unit).min(run.end()),
            );
            taken.extend(pieces.split_at_multiples(unit).map(|piece| (piece, unit)));
            for rest in [ByteRange::between(run.offset, pieces.offset), ByteRange::between(pieces.end(), run.end())] {
                if !rest.is_empty() {
                    self.runs.insert(rest.offset, (rest.len, unit));
                }
            }
        }
        taken
    }

    /// Removes and returns the piece to retry next, of the largest unit: one attempt may recover most there.
    pub(super) fn take_next(&mut self) -> Option<(ByteRange, u64)> {
        let (at, _) = self.runs.iter().max_by_key(|(at, (_, unit))| (*unit, std::cmp::Reverse(**at)))?;
        let first = ByteRange::new(*at, 1);
        self.take(first).pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_shrink_to_a_sector() {
        let ladder = |sector| {
            std::iter::successors(Some(1 << 20), move |len| next_unit(*len, sector)).skip(1).collect::<Vec<u64>>()
        };
        assert_eq!(ladder(512), [64 << 10, 4 << 10, 512]);
        assert_eq!(ladder(4096), [64 << 10, 4 << 10]);
        assert_eq!(next_unit(100, 512), None);
    }

    #[test]
    fn whole_pieces_are_taken_and_the_rest_stays() {
        let mut suspects = Suspects::default();
        suspects.add(ByteRange::new(0, 4096), 1024);
        suspects.add(ByteRange::new(4096, 100), 1024);
        assert_eq!(suspects.runs.len(), 1, "neighbours of the same unit are merged");
        let taken: Vec<_> = suspects.take(ByteRange::new(1500, 1000)).into_iter().map(|(piece, _)| piece).collect();
        assert_eq!(taken, [ByteRange::new(1024, 1024), ByteRange::new(2048, 1024)]);
        assert_eq!(suspects.take(ByteRange::new(4100, 1)), [(ByteRange::new(4096, 100), 1024)]);
        suspects.add(ByteRange::new(1024, 1024), 512);
        let order: Vec<_> = std::iter::from_fn(|| suspects.take_next()).map(|(piece, _)| piece.offset).collect();
        assert_eq!(order, [0, 3072, 1024, 1536]);
        assert!(suspects.runs.is_empty());
    }
}
