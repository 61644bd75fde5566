//! Requests without duplicates, and within the volume.

use cheetah_device::ByteRange;

use super::range_set::RangeSet;
use super::{SurveyPlan, WINDOW_BYTES};

/// The maximum number of bytes that one survey reads, and fetches: far more than the metadata of any sane file system,
/// and a limit for malicious ones.
const BYTES_MAX: u64 = 16 << 30;

/// Cuts the requests of a surveyor: parts outside the volume, and parts requested before, do not reach its
/// [`SurveyPlan`]. A range may be read after it was fetched, since only ranges that are read come back to the surveyor.
#[derive(Debug)]
pub(crate) struct RequestFilter {
    volume: ByteRange,
    read: RangeSet,
    /// Ranges read or fetched.
    fetched: RangeSet,
    read_bytes: u64,
    fetched_bytes: u64,
}

impl RequestFilter {
    /// No requests yet, for a volume of `volume_bytes`.
    pub(crate) fn new(volume_bytes: u64) -> Self {
        let volume = ByteRange::new(0, volume_bytes);
        Self { volume, read: RangeSet::default(), fetched: RangeSet::default(), read_bytes: 0, fetched_bytes: 0 }
    }

    /// Requests the new parts of `range`.
    pub(crate) fn read(&mut self, plan: &mut SurveyPlan, range: ByteRange) {
        let Some(range) = range.intersection(self.volume) else { return };
        let range = ByteRange::new(range.offset, range.len.min(BYTES_MAX - self.read_bytes));
        for part in self.read.add(range) {
            self.read_bytes += part.len;
            self.fetched.add(part);
            plan.read(part);
        }
    }

    /// Requests fetches of the new parts of `range`.
    pub(crate) fn fetch(&mut self, plan: &mut SurveyPlan, range: ByteRange) {
        let Some(range) = range.intersection(self.volume) else { return };
        let range = ByteRange::new(range.offset, range.len.min(BYTES_MAX - self.fetched_bytes));
        for part in self.fetched.add(range) {
            self.fetched_bytes += part.len;
            plan.fetch(part);
        }
    }

    /// Like [`fetch_windows`](Self::fetch_windows), with the priority of a read. The range may still be read for the
    /// surveyor.
    pub(crate) fn fetch_windows_soon(&mut self, plan: &mut SurveyPlan, range: ByteRange) {
        let before = plan.fetches.len();
        self.fetch_windows(plan, range);
        plan.reads.extend(plan.fetches.drain(before..));
    }

    /// Like [`fetch`](Self::fetch), with the bytes after `range` that The Sleuth Kit reads along with it.
    pub(crate) fn fetch_windows(&mut self, plan: &mut SurveyPlan, range: ByteRange) {
        let len = range.len.checked_next_multiple_of(WINDOW_BYTES).unwrap_or(range.len);
        self.fetch(plan, ByteRange::new(range.offset, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_requested_twice_or_outside_the_volume() {
        let mut filter = RequestFilter::new(100_000);
        let mut plan = SurveyPlan::default();
        filter.fetch(&mut plan, ByteRange::new(50, 50));
        filter.read(&mut plan, ByteRange::new(0, 75));
        filter.fetch(&mut plan, ByteRange::new(0, 120));
        filter.read(&mut plan, ByteRange::new(70, 10));
        filter.fetch_windows(&mut plan, ByteRange::new(60_000, 10));
        filter.read(&mut plan, ByteRange::new(100_000, u64::MAX));
        assert_eq!(plan.reads, [ByteRange::new(0, 75), ByteRange::new(75, 5)]);
        assert_eq!(plan.fetches, [ByteRange::new(50, 50), ByteRange::new(100, 20), ByteRange::new(60_000, 40_000)]);
    }
}
