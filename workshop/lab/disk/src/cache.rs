//! The drive's buffer: what was read ahead, and what is not yet on the platters.

use std::collections::{BTreeMap, VecDeque};

use crate::extent::Extent;
use crate::model::Model;

/// Segments of bytes that were read, the one in use last.
#[derive(Debug)]
pub struct ReadCache {
    segments: VecDeque<Extent>,
    segments_max: usize,
    segment_bytes: u64,
}

impl ReadCache {
    pub fn new(model: &Model) -> Self {
        Self { segments: VecDeque::new(), segments_max: model.segments, segment_bytes: model.segment_bytes }
    }

    /// Returns the segment in use.
    pub fn current(&self) -> Option<Extent> {
        self.segments.back().copied()
    }

    /// Returns whether a segment has the whole extent.
    pub fn covers(&self, extent: Extent) -> bool {
        self.segments.iter().any(|segment| segment.covers(extent))
    }

    /// Begins a new segment at a byte, in place of the one not used for longest.
    pub fn begin(&mut self, at: u64) {
        if self.segments.len() >= self.segments_max {
            self.segments.pop_front();
        }
        self.segments.push_back(Extent { start: at, end: at });
    }

    /// Records that the segment in use was read up to a byte; its oldest bytes make room.
    pub fn read_to(&mut self, end: u64) {
        if let Some(segment) = self.segments.back_mut() {
            segment.end = segment.end.max(end);
            segment.start = segment.start.max(segment.end.saturating_sub(self.segment_bytes));
        }
    }
}

/// Writes that are not yet on the platters, neighbours joined.
#[derive(Debug)]
pub struct WriteCache {
    dirty: BTreeMap<u64, u64>,
    bytes: u64,
    /// The bytes on their way to the platters, which still take room.
    leaving_bytes: u64,
    bytes_max: u64,
    pieces_max: usize,
}

impl WriteCache {
    pub fn new(model: &Model) -> Self {
        let (bytes_max, pieces_max) = (model.write_cache_bytes, model.cached_writes_max);
        Self { dirty: BTreeMap::new(), bytes: 0, leaving_bytes: 0, bytes_max, pieces_max }
    }

    /// Returns whether everything is on the platters.
    pub fn is_clean(&self) -> bool {
        self.bytes + self.leaving_bytes == 0
    }

    /// Returns whether something waits to be written.
    pub fn has_dirty(&self) -> bool {
        self.bytes > 0
    }

    /// Returns whether there is room for a write. One that is larger than the cache has room in an empty one.
    pub fn has_room(&self, len: u64) -> bool {
        let fits = self.bytes + self.leaving_bytes + len <= self.bytes_max && self.dirty.len() < self.pieces_max;
        fits || self.is_clean()
    }

    /// Returns whether the whole extent is in the cache.
    pub fn covers(&self, extent: Extent) -> bool {
        self.dirty.range(..=extent.start).next_back().is_some_and(|(_, end)| *end >= extent.end)
    }

    /// Adds a write.
    pub fn insert(&mut self, extent: Extent) {
        let Extent { mut start, mut end } = extent;
        while let Some((&other, &until)) = self.dirty.range(..=end).next_back() {
            if until < start {
                break;
            }
            (start, end) = (start.min(other), end.max(until));
            self.dirty.remove(&other);
            self.bytes -= until - other;
        }
        self.dirty.insert(start, end);
        self.bytes += end - start;
    }

    /// Returns up to `count` pieces, from a byte on, then from the beginning.
    pub fn pieces(&self, from: u64, count: usize) -> impl Iterator<Item = Extent> {
        let around = self.dirty.range(from..).chain(self.dirty.range(..from));
        around.take(count).map(|(&start, &end)| Extent { start, end })
    }

    /// Takes the first `len_max` bytes of a piece to write them; `written` tells that this is done.
    pub fn take(&mut self, piece: Extent, len_max: u64) -> Extent {
        let taken = Extent { start: piece.start, end: piece.end.min(piece.start + len_max) };
        self.dirty.remove(&piece.start);
        if taken.end < piece.end {
            self.dirty.insert(taken.end, piece.end);
        }
        self.bytes -= taken.len();
        self.leaving_bytes += taken.len();
        taken
    }

    /// Frees the room of what was taken.
    pub fn written(&mut self, len: u64) {
        self.leaving_bytes -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DESKTOP;

    fn extent(start: u64, end: u64) -> Extent {
        Extent { start, end }
    }

    #[test]
    fn overlapping_and_adjacent_writes_are_one_piece() {
        let mut cache = WriteCache::new(&DESKTOP);
        for (start, end) in [(10, 20), (30, 40), (20, 30), (5, 12), (100, 110)] {
            cache.insert(extent(start, end));
        }
        assert_eq!(cache.pieces(0, 9).collect::<Vec<_>>(), [extent(5, 40), extent(100, 110)]);
        assert!(cache.covers(extent(6, 40)) && !cache.covers(extent(6, 41)));
    }

    #[test]
    fn a_piece_that_leaves_takes_room_until_it_is_written() {
        let mut cache = WriteCache::new(&DESKTOP);
        let all = extent(0, DESKTOP.write_cache_bytes);
        cache.insert(all);
        let taken = cache.take(all, 4096);
        assert!(!cache.has_room(4096));
        cache.written(taken.len());
        assert!(cache.has_room(4096));
        assert_eq!(cache.pieces(0, 9).collect::<Vec<_>>(), [extent(4096, all.end)]);
    }

    #[test]
    fn a_segment_forgets_its_oldest_bytes() {
        let mut cache = ReadCache::new(&DESKTOP);
        cache.begin(0);
        cache.read_to(DESKTOP.segment_bytes + 5);
        assert!(!cache.covers(extent(4, 6)) && cache.covers(extent(5, 6)));
    }
}
