//! The free clusters of a volume.

use cheetah_device::ByteRange;

/// The free clusters of a volume, as far as they are known.
#[derive(Debug, Clone, Default)]
pub(super) struct FreeClusters {
    /// Where the clusters lie; `None` if it is not known which are free.
    clusters: Option<ByteRange>,
    /// The free ranges, in order once they are complete.
    ranges: Vec<ByteRange>,
}

impl FreeClusters {
    /// Begins with these clusters, of which none are free yet.
    pub(super) const fn of(clusters: ByteRange) -> Self {
        Self { clusters: Some(clusters), ranges: Vec::new() }
    }

    /// Whether it is known which are free.
    pub(super) const fn is_known(&self) -> bool {
        self.clusters.is_some()
    }

    /// Adds a free range.
    pub(super) fn add(&mut self, range: ByteRange) {
        if let Some(range) = self.clusters.and_then(|clusters| clusters.intersection(range)) {
            range.append_to(&mut self.ranges);
        }
    }

    /// The number of free ranges.
    pub(super) const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Puts the ranges in order.
    pub(super) fn finish(&mut self) {
        self.ranges = cheetah_device::coalesce(std::mem::take(&mut self.ranges), 0);
    }

    /// Whether a byte lies in a free cluster; `None` if that is not known, or if it lies in no cluster.
    pub(super) fn is_free(&self, offset: u64) -> Option<bool> {
        let byte = ByteRange::new(offset, 1);
        self.clusters.filter(|clusters| clusters.contains(byte))?;
        let behind = self.ranges.partition_point(|range| range.offset <= offset);
        let before = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
        Some(before.is_some_and(|range| range.contains(byte)))
    }

    /// How many of the first and of the last bytes of a range lie in free clusters; `None` if it is not known which are free, or if it
    /// lies in no cluster.
    pub(super) fn free_edges(&self, range: ByteRange) -> Option<(u64, u64)> {
        let clusters = self.clusters.filter(|clusters| clusters.intersection(range).is_some())?;
        if !clusters.contains(range) {
            return Some((0, 0));
        }
        let around = |offset: u64| {
            let behind = self.ranges.partition_point(|range| range.offset <= offset);
            let before = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
            before.and_then(|free| free.intersection(range)).filter(|free| free.contains(ByteRange::new(offset, 1)))
        };
        let (first, last) = (around(range.offset), around(range.end().saturating_sub(1)));
        Some((first.map_or(0, |free| free.len), last.map_or(0, |free| free.len)))
    }

    /// Whether a byte lies behind the last cluster.
    pub(super) fn is_behind(&self, offset: u64) -> bool {
        self.clusters.is_some_and(|clusters| offset >= clusters.end())
    }

    /// Whether a byte lies before the first cluster.
    pub(super) fn is_before(&self, offset: u64) -> bool {
        self.clusters.is_some_and(|clusters| offset < clusters.offset)
    }
}
