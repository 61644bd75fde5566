//! Requested ranges that have not arrived, and their purposes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use cheetah_device::{ByteRange, coalesce};

use super::{READ_BYTES_MAX, RangeSet, SurveyPlan, WINDOW_BYTES};

/// Two requests no further apart than this are coalesced: the gap costs less than another request.
pub(crate) const GAP_BYTES: u64 = 4 << 10;
/// The smallest sector; tools read whole ones.
const SECTOR_BYTES: u64 = 512;
/// The maximum number of pending requests. The group descriptors of 16 TiB make 400,000.
const PENDING_MAX: usize = 1 << 20;

/// Requested ranges that have not arrived, each with a note of its purpose.
///
/// Requests made while a range is parsed are [submitted](Self::submit) together: sorted, and neighbours coalesced.
/// Their total is limited to the size of the volume, so that structures that refer to the same bytes repeatedly do not
/// cause endless reads.
pub(crate) struct PendingReads<T> {
    pending: BTreeMap<u64, (u64, T)>,
    batch: Vec<ByteRange>,
    /// All ranges that have been put on plans.
    submitted: RangeSet,
    volume_bytes: u64,
    bytes_left: u64,
}

impl<T> PendingReads<T> {
    /// No requests yet, for a volume of `volume_bytes`.
    pub fn new(volume_bytes: u64) -> Self {
        let (pending, batch, submitted) = (BTreeMap::new(), Vec::new(), RangeSet::default());
        Self { pending, batch, submitted, volume_bytes, bytes_left: volume_bytes }
    }

    /// Requests `range`. It arrives in pieces; `note` makes the note of a piece from its offset in the range. A range
    /// that is not wholly in the volume is left out, as are pieces beyond the limits. Returns whether all of it will
    /// arrive.
    pub fn request(&mut self, range: ByteRange, note: impl Fn(u64) -> T) -> bool {
        if !range.fits(self.volume_bytes) {
            return false;
        }
        let mut all = true;
        for piece in range.split_at_multiples(READ_BYTES_MAX) {
            if self.pending.len() >= PENDING_MAX || piece.len > self.bytes_left {
                return false;
            }
            match self.pending.entry(piece.offset) {
                Entry::Vacant(vacant) => {
                    vacant.insert((piece.len, note(piece.offset - range.offset)));
                    self.bytes_left -= piece.len;
                    self.batch.push(piece);
                }
                // Damaged evidence may use one range for two purposes. Only the first is served.
                Entry::Occupied(_) => all = false,
            }
        }
        all
    }

    /// Adds all requests since the last call to the plan.
    pub fn submit(&mut self, plan: &mut SurveyPlan) {
        for range in coalesce(std::mem::take(&mut self.batch), GAP_BYTES) {
            self.submitted.add(range);
            plan.read(range);
        }
    }

    /// Requests fetches of the parts of `range` that are in the volume and have not been requested before.
    pub fn fetch(&mut self, range: ByteRange, plan: &mut SurveyPlan) {
        let inside = range.intersection(ByteRange::new(0, self.volume_bytes));
        for part in inside.into_iter().flat_map(|inside| self.submitted.add(inside)) {
            plan.fetch(part);
        }
    }

    /// Requests a fetch of everything that tools read when they need any byte of `range`: [`WINDOW_BYTES`] from the
    /// sector of that byte.
    pub fn fetch_window(&mut self, range: ByteRange, plan: &mut SurveyPlan) {
        let Some(last) = range.end().checked_sub(1).filter(|last| *last >= range.offset) else { return };
        let sector = |at: u64| at - at % SECTOR_BYTES;
        self.fetch(ByteRange::between(sector(range.offset), sector(last).saturating_add(WINDOW_BYTES)), plan);
    }

    /// Removes and returns the requests that `range`, which comes from the plan, completes; in order, each with its
    /// note.
    pub fn take(&mut self, range: ByteRange) -> Vec<(ByteRange, T)> {
        let found: Vec<u64> = (self.pending.range(range.offset..range.end()))
            .filter(|(offset, (len, _))| range.contains(ByteRange::new(**offset, *len)))
            .map(|(offset, _)| *offset)
            .collect();
        (found.into_iter())
            .filter_map(|offset| self.pending.remove(&offset).map(|(len, note)| (ByteRange::new(offset, len), note)))
            .collect()
    }
}

/// Returns `part` of `bytes`, which are those of `whole`; empty if it is not within.
pub(crate) fn part_of(bytes: &[u8], whole: ByteRange, part: ByteRange) -> &[u8] {
    let start = part.offset.checked_sub(whole.offset).and_then(|start| usize::try_from(start).ok());
    let len = usize::try_from(part.len).ok();
    (start.zip(len)).and_then(|(start, len)| bytes.get(start..start.checked_add(len)?)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_coalesced_and_return_as_separate_requests() {
        let mut asked = PendingReads::new(8 << 20);
        asked.request(ByteRange::new(9000, 100), |at| ("b", at));
        asked.request(ByteRange::new(5000, 100), |at| ("a", at));
        asked.request(ByteRange::new(READ_BYTES_MAX - 10, 30), |at| ("c", at));
        asked.request(ByteRange::new((8 << 20) - 5, 6), |at| ("outside", at));
        let mut plan = SurveyPlan::default();
        asked.submit(&mut plan);
        let expected = [(5000, 4100), (READ_BYTES_MAX - 10, 10), (READ_BYTES_MAX, 20)];
        assert_eq!(Vec::from(plan.reads.clone()), expected.map(|(offset, len)| ByteRange::new(offset, len)));
        let found: Vec<_> = plan.reads.into_iter().flat_map(|range| asked.take(range)).collect();
        let expected = [(9000, 100, "b", 0), (READ_BYTES_MAX - 10, 10, "c", 0), (READ_BYTES_MAX, 20, "c", 10)];
        let expected = expected.map(|(offset, len, note, at)| (ByteRange::new(offset, len), (note, at)));
        assert_eq!(found[0], (ByteRange::new(5000, 100), ("a", 0)));
        assert_eq!(found[1..], expected);
        assert!(asked.take(ByteRange::new(0, 8 << 20)).is_empty());
    }

    #[test]
    fn requests_are_limited_to_the_size_of_the_volume() {
        let mut asked = PendingReads::new(1000);
        let mut plan = SurveyPlan::default();
        for turn in 0..100 {
            asked.request(ByteRange::new(turn % 7, 90), |_| ());
            asked.submit(&mut plan);
            asked.take(ByteRange::new(0, 1000));
        }
        assert!(plan.reads.iter().map(|range| range.len).sum::<u64>() <= 1000);
    }
}
