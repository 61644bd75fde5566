//! Ranges that were searched only partly, because a limit was reached.
//!
//! Their own bytes were searched; what they hold, such as compressed data, was not to its end. So nothing is known of the rest.

use std::fmt;
use std::str::FromStr;

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, coalesce};

/// The most ranges that are kept: further ones widen the last.
const RANGES_MAX: usize = 100_000;

cheetah_kit::named! {
    /// The limit that was reached.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum SearchLimit {
        /// Compressed data hold more than is unpacked of one place.
        Size = "size",
        /// Compressed data lie deeper in each other than is looked for.
        Depth = "depth",
        /// There are more hits, or compressed data, in compressed data than are kept of one place.
        Hits = "hits",
        /// More was read and unpacked for compressed data than is for the whole source.
        Work = "work",
        /// There are more compressed data in the source than are remembered.
        Places = "places",
        /// Partition tables or file systems say that the source has more bytes than it has.
        End = "end",
    }
}

impl fmt::Display for SearchLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no limit of a search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no limit of a search")]
pub struct UnknownLimit(String);

impl FromStr for SearchLimit {
    type Err = UnknownLimit;

    fn from_str(text: &str) -> Result<Self, UnknownLimit> {
        Self::of_name(text).ok_or_else(|| UnknownLimit(text.to_owned()))
    }
}

/// A range that was searched only partly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Where, in the source. It is where the compressed data begin that were not searched to their end, with what was read of them; or of
    /// several, from where the first begins to where the last does. Of a source that is too short, it is what it does not have.
    pub range: ByteRange,
    /// The limit that was reached first.
    pub limit: SearchLimit,
}

/// The ranges that were searched only partly, in the order in which they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truncations(Vec<Truncation>);

impl Truncations {
    /// Adds a range. It widens the last one if there are too many.
    pub fn push(&mut self, truncation: Truncation) {
        if truncation.range.is_empty() {
            return;
        }
        let is_full = self.0.len() >= RANGES_MAX;
        match self.0.last_mut() {
            Some(last) if is_full => {
                let begin = last.range.offset.min(truncation.range.offset);
                last.range = ByteRange::between(begin, last.range.end().max(truncation.range.end()));
            }
            _ => self.0.push(truncation),
        }
    }

    /// The ranges. They may overlap.
    pub fn ranges(&self) -> &[Truncation] {
        &self.0
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes in them that were searched, each once: a range may reach over some that cannot be read.
    pub fn bytes(&self, coverage: &Coverage) -> u64 {
        let ranges = coalesce(self.0.iter().map(|truncation| truncation.range).collect(), 0);
        let runs = ranges.into_iter().flat_map(|range| coverage.runs(range));
        runs.filter(|(_, state)| *state == State::Read).map(|(run, _)| run.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_ranges_that_overlap_count_once_and_limits_are_known_by_their_names() {
        let mut truncations = Truncations::default();
        for (offset, len) in [(0, 10), (5, 10), (100, 0), (200, 1)] {
            truncations.push(Truncation { range: ByteRange::new(offset, len), limit: SearchLimit::Size });
        }
        let read = |ranges: &[(u64, u64)]| {
            let mut coverage = Coverage::new(250);
            ranges.iter().for_each(|(offset, len)| coverage.set(ByteRange::new(*offset, *len), State::Read));
            truncations.bytes(&coverage)
        };
        assert_eq!((truncations.ranges().len(), truncations.is_empty()), (3, false));
        assert_eq!([read(&[(0, 250)]), read(&[(0, 12)]), read(&[(0, 2), (4, 246)]), read(&[])], [16, 12, 14, 0]);
        let mut behind = Truncations::default();
        behind.push(Truncation { range: ByteRange::between(250, u64::MAX), limit: SearchLimit::End });
        assert_eq!(behind.bytes(&Coverage::new(250)), 0);
        assert!(SearchLimit::ALL.iter().all(|limit| limit.name().parse() == Ok(*limit)));
        assert!("time".parse::<SearchLimit>().is_err());
    }

    #[test]
    fn more_ranges_than_are_kept_widen_the_last() {
        let mut truncations = Truncations::default();
        let count = RANGES_MAX as u64 + 10;
        for at in 0..count {
            truncations.push(Truncation { range: ByteRange::new(10 * at, 1), limit: SearchLimit::Depth });
        }
        let last = truncations.ranges().last().map(|truncation| truncation.range);
        assert_eq!(truncations.ranges().len(), RANGES_MAX);
        assert_eq!(last, Some(ByteRange::between(10 * (RANGES_MAX as u64 - 1), 10 * (count - 1) + 1)));
    }
}
