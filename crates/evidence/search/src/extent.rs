//! Which parts of a device are searched: all of it, or what an earlier search has left.

use cheetah_device::{ByteRange, coalesce};
use cheetah_error::Result;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};

use crate::batch::Batch;
use crate::seam::Overlap;

/// Ranges in which hits may begin, and the ranges that are read for them. A range is read with the bytes around it, because a hit at its
/// end may depend on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// In order, and so far apart that what is read for one is not read for another.
    own: Vec<ByteRange>,
    reads: Vec<ByteRange>,
}

impl Extent {
    /// These ranges of a device of `size` bytes, or all of it. What is read begins and ends at multiples of `unit`, and at the end of
    /// the device.
    pub fn new(ranges: Option<&[ByteRange]>, overlap: Overlap, unit: u64, size: u64) -> Self {
        let whole = ByteRange::new(0, size);
        let Some(ranges) = ranges else { return Self { own: vec![whole], reads: vec![whole] } };
        let unit = unit.max(1);
        let ranges = ranges.iter().filter_map(|range| range.intersection(whole)).collect();
        let apart = (overlap.edge() as u64).saturating_add(unit.saturating_mul(2));
        let own = coalesce(ranges, apart);
        let read = |range: &ByteRange| {
            let begin = range.offset.saturating_sub(overlap.before as u64);
            let end = range.end().saturating_add(overlap.after as u64);
            let end = end.checked_next_multiple_of(unit).unwrap_or(u64::MAX).min(size);
            ByteRange::between(begin - begin % unit, end)
        };
        let reads = own.iter().map(read).collect();
        Self { own, reads }
    }

    /// What is read, in order.
    pub fn reads(&self) -> &[ByteRange] {
        &self.reads
    }

    /// Cuts results of what was read to the ranges.
    pub fn clip(
        self,
        batches: impl Stream<Item = Result<Batch>> + Send + 'static,
    ) -> BoxStream<'static, Result<Batch>> {
        let clip = move |batch: Result<Batch>| {
            let clipped: Vec<_> = match batch {
                Ok(batch) => self.cut(batch).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(clipped)
        };
        batches.flat_map(clip).boxed()
    }

    /// The parts of a result that lie in the ranges.
    fn cut(&self, batch: Batch) -> Vec<Batch> {
        let first = self.own.partition_point(|own| own.end() <= batch.range.offset);
        let own = self.own.get(first..).unwrap_or_default();
        match own.first() {
            Some(own) if own.contains(batch.range) => return vec![batch],
            _ => {}
        }
        let near = own.iter().take_while(|own| own.offset < batch.range.end());
        near.filter_map(|own| own.intersection(batch.range)).map(|range| batch.within(range)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERLAP: Overlap = Overlap { before: 10, after: 20 };

    #[test]
    fn what_is_read_reaches_beyond_the_ranges_and_is_read_once() {
        let ranges =
            [ByteRange::new(5000, 100), ByteRange::new(0, 1), ByteRange::new(5600, 1), ByteRange::new(9999, 50)];
        let extent = Extent::new(Some(&ranges), OVERLAP, 512, 10_000);
        assert_eq!(extent.own, [ByteRange::new(0, 1), ByteRange::new(5000, 601), ByteRange::new(9999, 1)]);
        let reads = [ByteRange::new(0, 512), ByteRange::between(4608, 5632), ByteRange::between(9728, 10_000)];
        assert_eq!(extent.reads(), reads);
        let extent = Extent::new(Some(&[ByteRange::new(1, u64::MAX)]), OVERLAP, 512, u64::MAX);
        assert_eq!(extent.reads(), [ByteRange::new(0, u64::MAX)]);
    }
}
