//! Bad ranges: pages of a drive whose content is lost, although every member answers.
//!
//! A single parity loses a page if the writer dies in the middle of a write and a member is lost as well: data and
//! redundancy of the group are then of different versions, and the member's unit cannot be computed. Waiting does not
//! help, so such pages are recorded in the map, and the member gets in sync without them. Reads of a bad page fail; a
//! write of the whole page makes it good, and so does one of a part of it below a layer that authenticates content.

use std::fmt;
use std::str::FromStr;

use cheetah_device::ByteRange;

use crate::geometry::PAGE_BYTES;

/// The most ranges that are recorded, so that a map stays small enough to be stored.
pub const BAD_RANGES_MAX: usize = 4096;
/// Writes in the middle of ranges may split them into at most this many.
const SPLIT_RANGES_MAX: usize = 2 * BAD_RANGES_MAX;

/// A bounded set of pages, as ranges: in order, disjoint, of whole pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BadRanges(Vec<ByteRange>);

/// The list has no room for another range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl BadRanges {
    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.0.iter().copied()
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of bytes in them.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.len).sum()
    }

    /// The parts of the bad ranges that lie within `range`.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let first = self.0.partition_point(|bad| bad.end() <= range.offset);
        self.0[first..]
            .iter()
            .take_while(move |bad| bad.offset < range.end())
            .filter_map(move |bad| bad.intersection(range))
    }

    /// Whether a byte of `range` is bad.
    pub fn touch(&self, range: ByteRange) -> bool {
        self.within(range).next().is_some()
    }

    /// Adds the pages of ranges.
    ///
    /// # Errors
    ///
    /// If there would be too many ranges. Nothing is added then.
    pub fn insert(&mut self, ranges: &[ByteRange]) -> Result<(), Full> {
        let pages = ranges.iter().filter(|range| !range.is_empty()).map(|range| range.aligned_to(PAGE_BYTES));
        let mut all: Vec<ByteRange> = self.0.iter().copied().chain(pages).collect();
        all.sort_unstable();
        let mut joined: Vec<ByteRange> = Vec::new();
        for range in all {
            match joined.last_mut() {
                Some(last) if range.offset <= last.end() => {
                    *last = ByteRange::between(last.offset, last.end().max(range.end()));
                }
                _ => joined.push(range),
            }
        }
        if joined.len() > BAD_RANGES_MAX.max(self.0.len()) {
            return Err(Full);
        }
        self.0 = joined;
        Ok(())
    }

    /// Removes the pages that lie within `range` as a whole.
    ///
    /// # Errors
    ///
    /// If too many ranges would be left. Nothing is removed then.
    pub fn remove(&mut self, range: ByteRange) -> Result<(), Full> {
        let end = range.end() / PAGE_BYTES * PAGE_BYTES;
        let pages = ByteRange::between(range.offset.next_multiple_of(PAGE_BYTES), end);
        if !self.touch(pages) {
            return Ok(());
        }
        let pieces = |bad: &ByteRange| {
            let before = ByteRange::between(bad.offset, bad.end().min(pages.offset));
            let after = ByteRange::between(bad.offset.max(pages.end()), bad.end());
            [before, after].into_iter().filter(|piece| !piece.is_empty())
        };
        let left: Vec<ByteRange> = self.0.iter().flat_map(pieces).collect();
        if left.len() > SPLIT_RANGES_MAX {
            return Err(Full);
        }
        self.0 = left;
        Ok(())
    }

    /// Parses the output of [`Display`](fmt::Display) for a drive of `size` bytes. `None` if the text has another form.
    pub fn parse(text: &str, size: u64) -> Option<Self> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for run in text.split(',').filter(|run| !run.is_empty()) {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last) = (u64::from_str(first).ok()?, u64::from_str(last).ok()?);
            let end = last.checked_add(1)?.checked_mul(PAGE_BYTES)?;
            let before = ranges.last().map_or(0, |range| range.end());
            if first > last || end > size.next_multiple_of(PAGE_BYTES) || first * PAGE_BYTES < before {
                return None;
            }
            ranges.push(ByteRange::between(first * PAGE_BYTES, end));
            if ranges.len() > SPLIT_RANGES_MAX {
                return None;
            }
        }
        Some(Self(ranges))
    }
}

/// Runs of pages: `0-3,7`.
impl fmt::Display for BadRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (first, last) = (range.offset / PAGE_BYTES, range.end() / PAGE_BYTES - 1);
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u64 = 64;

    proptest! {
        #[test]
        fn ranges_are_the_pages_added_and_not_removed_since(
            steps in prop::collection::vec((any::<bool>(), 0..PAGES * PAGE_BYTES, 1u64..40_000), 0..40),
        ) {
            let mut ranges = BadRanges::default();
            let mut pages = BTreeSet::new();
            for (add, offset, len) in steps {
                let range = ByteRange::between(offset, (offset + len).min(PAGES * PAGE_BYTES));
                if add {
                    ranges.insert(&[range]).unwrap();
                    pages.extend(range.offset / PAGE_BYTES..range.end().div_ceil(PAGE_BYTES));
                } else {
                    ranges.remove(range).unwrap();
                    (range.offset.div_ceil(PAGE_BYTES)..range.end() / PAGE_BYTES).for_each(|page| { pages.remove(&page); });
                }
            }
            for page in 0..PAGES {
                let range = ByteRange::new(page * PAGE_BYTES + 5, 1);
                prop_assert_eq!(ranges.touch(range), pages.contains(&page));
            }
            prop_assert_eq!(ranges.bytes(), pages.len() as u64 * PAGE_BYTES);
            let text = ranges.to_string();
            prop_assert_eq!(BadRanges::parse(&text, PAGES * PAGE_BYTES), Some(ranges));
        }
    }

    #[test]
    fn a_list_that_is_too_long_or_out_of_order_is_refused() {
        let mut ranges = BadRanges::default();
        let alternate: Vec<ByteRange> =
            (0..=BAD_RANGES_MAX as u64).map(|index| ByteRange::new(2 * index * PAGE_BYTES, 1)).collect();
        assert_eq!(ranges.insert(&alternate), Err(Full));
        assert!(ranges.is_empty());
        for text in ["3", "2-1", "x", "1,0", "0-", "0,9", "18446744073709551615"] {
            assert_eq!(BadRanges::parse(text, 3 * PAGE_BYTES), None, "{text}");
        }
    }
}
