//! Ranges with something unreadable in them, to be read again in smaller pieces.

use std::collections::BTreeMap;

use crate::ByteRange;

/// The sizes a range that cannot be read in one go is tried in, one after the other, before single sectors: few steps,
/// because on a failing disk each attempt that fails may take seconds.
const STEPS: [u64; 2] = [64 << 10, 4 << 10];

/// What was tried in vain, and in which pieces it is to be tried next. Ranges do not overlap.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// First byte, to length and the size of the pieces.
    runs: BTreeMap<u64, (u64, u64)>,
}

/// The size of the pieces to try next after a range of `len` bytes failed; `None` if it is a single sector, so that
/// there is nothing left to try.
pub(super) fn next_unit(len: u64, sector: u64) -> Option<u64> {
    (len > sector).then(|| STEPS.into_iter().find(|step| *step < len && *step > sector).unwrap_or(sector))
}

impl Suspects {
    /// To be tried in pieces cut at multiples of `unit`.
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

    /// Takes out the pieces that have a byte in `range`: each with its unit.
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

    /// Takes out the piece to try next: where pieces are largest, much is still to be gained by a single attempt.
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
    fn pieces_shrink_to_a_sector() {
        let ladder = |sector| {
            std::iter::successors(Some(1 << 20), move |len| next_unit(*len, sector)).skip(1).collect::<Vec<u64>>()
        };
        assert_eq!(ladder(512), [64 << 10, 4 << 10, 512]);
        assert_eq!(ladder(4096), [64 << 10, 4 << 10]);
        assert_eq!(next_unit(100, 512), None);
    }

    #[test]
    fn what_is_taken_is_whole_pieces_and_the_rest_stays() {
        let mut suspects = Suspects::default();
        suspects.add(ByteRange::new(0, 4096), 1024);
        suspects.add(ByteRange::new(4096, 100), 1024);
        assert_eq!(suspects.runs.len(), 1, "neighbours of a kind are one");
        let taken: Vec<_> = suspects.take(ByteRange::new(1500, 1000)).into_iter().map(|(piece, _)| piece).collect();
        assert_eq!(taken, [ByteRange::new(1024, 1024), ByteRange::new(2048, 1024)]);
        assert_eq!(suspects.take(ByteRange::new(4100, 1)), [(ByteRange::new(4096, 100), 1024)]);
        suspects.add(ByteRange::new(1024, 1024), 512);
        let order: Vec<_> = std::iter::from_fn(|| suspects.take_next()).map(|(piece, _)| piece.offset).collect();
        assert_eq!(order, [0, 3072, 1024, 1536]);
        assert!(suspects.runs.is_empty());
    }
}
