//! Byte ranges.

use std::fmt;

/// A range of bytes of a device: `len` bytes from `offset`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; may be 0.
    pub len: u64,
}

impl ByteRange {
    /// Returns the range of `len` bytes from `offset`.
    pub const fn new(offset: u64, len: u64) -> Self {
        Self { offset, len }
    }

    /// Returns the range from `start` up to, not including, `end`; empty if `end` is not after `start`.
    pub const fn between(start: u64, end: u64) -> Self {
        Self { offset: start, len: end.saturating_sub(start) }
    }

    /// Returns the offset of the first byte after the range, saturating, so that a malicious range is outside any
    /// device.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether it lies within a device of `size` bytes; overflow counts as outside.
    pub const fn fits(self, size: u64) -> bool {
        match self.offset.checked_add(self.len) {
            Some(end) => end <= size,
            None => false,
        }
    }

    /// Whether every byte of `other` is in this range.
    pub const fn contains(self, other: Self) -> bool {
        self.offset <= other.offset && other.end() <= self.end()
    }

    /// Returns the bytes in both ranges, if any.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let both = Self::between(self.offset.max(other.offset), self.end().min(other.end()));
        (!both.is_empty()).then_some(both)
    }

    /// Returns the range `by` bytes further on.
    pub const fn shifted(self, by: u64) -> Self {
        Self { offset: self.offset + by, len: self.len }
    }

    /// Returns the smallest range that contains this one and starts and ends at multiples of `unit`.
    pub const fn aligned_to(self, unit: u64) -> Self {
        let start = self.offset - self.offset % unit;
        Self { offset: start, len: self.end().next_multiple_of(unit) - start }
    }

    /// Adds the range to others that lie before it: one that continues the last of them lengthens it.
    pub fn append_to(self, ranges: &mut Vec<Self>) {
        match ranges.last_mut() {
            Some(last) if last.end() == self.offset => last.len += self.len,
            _ => ranges.push(self),
        }
    }

    /// Splits the range at every multiple of `unit`; the parts are in order, and none is empty.
    pub fn split_at_multiples(self, unit: u64) -> impl Iterator<Item = Self> {
        let end = self.end();
        let mut at = self.offset;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let next = ((at / unit) + 1).saturating_mul(unit).min(end);
                let piece = Self::between(at, next);
                at = next;
                piece
            })
        })
    }
}

/// Sorts ranges, and coalesces those that overlap, touch, or are at most `gap` bytes apart. Empty ones are left out.
pub fn coalesce(mut ranges: Vec<ByteRange>, gap: u64) -> Vec<ByteRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let is_near = next.offset <= last.end().saturating_add(gap);
        if is_near {
            *last = ByteRange::between(last.offset, last.end().max(next.end()));
        }
        is_near
    });
    ranges
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_multiples() {
        let pieces: Vec<_> = ByteRange::new(3, 10).split_at_multiples(4).collect();
        assert_eq!(pieces, [ByteRange::new(3, 1), ByteRange::new(4, 4), ByteRange::new(8, 4), ByteRange::new(12, 1)]);
        assert_eq!(ByteRange::new(4, 0).split_at_multiples(4).count(), 0);
    }

    #[test]
    fn ranges_that_overlap_touch_or_are_near_are_coalesced() {
        let ranges = [(30, 5), (0, 4), (4, 2), (2, 1), (9, 0), (8, 1), (u64::MAX, 9)];
        let coalesced = |gap| {
            let ranges = ranges.map(|(offset, len)| ByteRange::new(offset, len)).to_vec();
            coalesce(ranges, gap).into_iter().map(|range| (range.offset, range.len)).collect::<Vec<_>>()
        };
        assert_eq!(coalesced(0), [(0, 6), (8, 1), (30, 5), (u64::MAX, 9)]);
        assert_eq!(coalesced(2), [(0, 9), (30, 5), (u64::MAX, 9)]);
        assert_eq!(coalesced(u64::MAX), [(0, u64::MAX)]);
    }

    #[test]
    fn a_range_that_overflows_fits_nowhere() {
        assert!(!ByteRange::new(u64::MAX, 2).fits(u64::MAX));
        assert!(ByteRange::new(u64::MAX, 0).fits(u64::MAX));
    }
}
