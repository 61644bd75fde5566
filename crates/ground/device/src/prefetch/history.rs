//! The last reads that belong to no stream, and the detection of streams in them.

use super::MIB;
use super::pattern::Direction;
use crate::ByteRange;

/// The number of reads remembered: enough for twenty streams that begin at once and alternate.
const READS: usize = 64;
/// The number of latest reads searched for a stride; the search takes quadratic time.
const READS_STRIDE: usize = 16;
/// Records further apart than this are more likely to be alternating streams.
const STEP_MAX: u64 = 16 * MIB;
/// The number of adjacent reads that make a stream. Two are adjacent by chance too often among random reads.
const ADJACENT: usize = 3;

/// The last few reads that belong to no stream.
///
/// A set rather than a sequence: reads of a stream may arrive in any order, with other reads between them, and are
/// detected as soon as enough of them have arrived.
pub(super) struct History {
    starts: [u64; READS],
    ends: [u64; READS],
    /// The slot for the next read; the slot before it holds the latest.
    next: usize,
}

/// A stream detected among the reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DetectedStream {
    /// Its direction.
    pub(super) direction: Direction,
    /// The range its reads cover.
    pub(super) hull: ByteRange,
    /// The distance between the starts of its reads, if they are not adjacent.
    pub(super) step: Option<u64>,
}

impl History {
    pub(super) fn new() -> Self {
        // An empty slot is a read that nothing is adjacent to.
        Self { starts: [u64::MAX; READS], ends: [u64::MAX; READS], next: 0 }
    }

    /// Remembers a read; returns the stream it completes, if any.
    pub(super) fn note(&mut self, range: ByteRange) -> Option<DetectedStream> {
        let known = (0..READS).any(|i| self.starts[i] == range.offset && self.ends[i] == range.end());
        if known || range.is_empty() {
            return None;
        }
        let found = self.adjacent(range).or_else(|| self.strided(range));
        self.starts[self.next] = range.offset;
        self.ends[self.next] = range.end();
        self.next = (self.next + 1) % READS;
        found
    }

    fn adjacent(&self, range: ByteRange) -> Option<DetectedStream> {
        let (mut start, mut end) = (range.offset, range.end());
        // The ages of the reads at the two ends of the run; the new one is the youngest.
        let (mut age_low, mut age_high) = (0, 0);
        let mut reads = 1;
        while reads < ADJACENT {
            if let Some(slot) = self.ends.iter().position(|e| *e == start) {
                (start, age_low) = (self.starts[slot], self.age(slot));
            } else if let Some(slot) = self.starts.iter().position(|s| *s == end) {
                (end, age_high) = (self.ends[slot], self.age(slot));
            } else {
                return None;
            }
            reads += 1;
        }
        let direction = if age_high < age_low { Direction::Up } else { Direction::Down };
        Some(DetectedStream { direction, hull: ByteRange::between(start, end), step: None })
    }

    fn strided(&self, range: ByteRange) -> Option<DetectedStream> {
        let same = |start: u64| self.latest().any(|slot| self.starts[slot] == start && self.len(slot) == range.len);
        for slot in self.latest().filter(|slot| self.len(*slot) == range.len) {
            let before = self.starts[slot];
            let step = before.abs_diff(range.offset);
            let back = |from: u64| if before < range.offset { from.checked_sub(step) } else { from.checked_add(step) };
            // Overlapping reads are not records.
            let possible = (range.len..=STEP_MAX).contains(&step);
            let Some(second) = back(before).filter(|at| possible && same(*at)) else { continue };
            let Some(first) = back(second).filter(|at| same(*at)) else { continue };
            let direction = if before < range.offset { Direction::Up } else { Direction::Down };
            let hull = ByteRange::between(first.min(range.offset), first.max(range.offset).saturating_add(range.len));
            return Some(DetectedStream { direction, hull, step: Some(step) });
        }
        None
    }

    /// Returns the slots of the latest reads, latest first.
    fn latest(&self) -> impl Iterator<Item = usize> {
        let next = self.next;
        (1..=READS_STRIDE).map(move |back| (next + READS - back) % READS)
    }

    fn len(&self, slot: usize) -> u64 {
        self.ends[slot] - self.starts[slot]
    }

    /// Returns the age of a slot: 1 for the latest read.
    fn age(&self, slot: usize) -> usize {
        (self.next + READS - slot - 1) % READS + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn last_found(starts: &[u64], len: u64) -> Option<DetectedStream> {
        let mut history = History::new();
        starts.iter().map(|start| history.note(ByteRange::new(*start, len))).last().flatten()
    }

    #[test]
    fn three_adjacent_reads_make_a_stream_in_either_direction() {
        let up = last_found(&[0, 4096, 8192], 4096).unwrap();
        assert_eq!((up.direction, up.hull, up.step), (Direction::Up, ByteRange::new(0, 12288), None));
        let down = last_found(&[8192, 4096, 0], 4096).unwrap();
        assert_eq!((down.direction, down.hull), (Direction::Down, ByteRange::new(0, 12288)));
        assert_eq!(last_found(&[0, 4096], 4096), None);
    }

    #[test]
    fn a_stream_is_detected_in_any_order_and_among_other_reads() {
        let found = last_found(&[4096, 900 * KIB, 0, 77 * KIB, 8192], 4096).unwrap();
        assert_eq!((found.direction, found.hull), (Direction::Up, ByteRange::new(0, 12288)));
    }

    #[test]
    fn four_reads_at_equal_distances_make_a_strided_stream() {
        let step = 200 * KIB;
        let up = last_found(&[0, step, 2 * step, 3 * step], 4096).unwrap();
        assert_eq!((up.direction, up.step), (Direction::Up, Some(step)));
        let down = last_found(&[3 * step, 2 * step, step, 0], 4096).unwrap();
        assert_eq!((down.direction, down.step), (Direction::Down, Some(step)));
        assert_eq!(last_found(&[0, step, 2 * step], 4096), None);
    }

    #[test]
    fn repeated_reads_make_no_stream() {
        assert_eq!(last_found(&[0, 4096, 0, 4096, 0, 4096], 4096), None);
    }
}
