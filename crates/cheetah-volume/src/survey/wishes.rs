//! What a surveyor has asked for, and what for.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use cheetah_device::ByteRange;

use super::{Plan, READ_BYTES_MAX, Ranges, WINDOW_BYTES};

/// Two wishes no further apart than this become one read: what lies between costs less than another request.
const GAP_BYTES: u64 = 4 << 10;
/// Tools read whole sectors, of at least so many bytes.
const SECTOR_BYTES: u64 = 512;
/// More wishes than this are not kept at a time. The group descriptors of 16 TiB make 400,000.
const WISHES_MAX: usize = 1 << 20;

/// Ranges that have been asked for and have not come yet, each with a note of what it is.
///
/// Wishes made while some bytes are looked into are [put on the plan](Wishes::ask) together: sorted, and those
/// that lie side by side as one. Their sum is bounded by the size of the volume, so that structures which refer to
/// the same bytes over and over cannot have them read without end.
pub(crate) struct Wishes<T> {
    wishes: BTreeMap<u64, (u64, T)>,
    batch: Vec<ByteRange>,
    /// All that has been put on plans.
    told: Ranges,
    volume_bytes: u64,
    bytes_left: u64,
}

impl<T> Wishes<T> {
    /// Nothing asked for yet, of a volume of this size in bytes.
    pub fn new(volume_bytes: u64) -> Self {
        let (wishes, batch, told) = (BTreeMap::new(), Vec::new(), Ranges::default());
        Self { wishes, batch, told, volume_bytes, bytes_left: volume_bytes }
    }

    /// Wishes for `range`. It comes in pieces; `note` makes the note for the one that starts so many bytes into the
    /// range. A range that is not wholly in the volume is left out, as are pieces beyond what is bounded. Says
    /// whether all of it will come.
    pub fn wish(&mut self, range: ByteRange, note: impl Fn(u64) -> T) -> bool {
        if !range.fits(self.volume_bytes) {
            return false;
        }
        let mut all = true;
        for piece in range.split_at_multiples(READ_BYTES_MAX) {
            if self.wishes.len() >= WISHES_MAX || piece.len > self.bytes_left {
                return false;
            }
            match self.wishes.entry(piece.offset) {
                Entry::Vacant(vacant) => {
                    vacant.insert((piece.len, note(piece.offset - range.offset)));
                    self.bytes_left -= piece.len;
                    self.batch.push(piece);
                }
                // The same place for two purposes: evidence that is damaged. The first one is as good as the second.
                Entry::Occupied(_) => all = false,
            }
        }
        all
    }

    /// Puts all wishes since the last time on the plan.
    pub fn ask(&mut self, plan: &mut Plan) {
        for range in merged(&mut self.batch) {
            self.told.add(range);
            plan.read(range);
        }
        self.batch.clear();
    }

    /// Has what is in the volume of `range` fetched, where it has not been asked for before.
    pub fn fetch(&mut self, range: ByteRange, plan: &mut Plan) {
        let inside = range.intersection(ByteRange::new(0, self.volume_bytes));
        for part in inside.into_iter().flat_map(|inside| self.told.add(inside)) {
            plan.fetch(part);
        }
    }

    /// Has all fetched that tools read when they want any of `range`: from the sector that holds what they want,
    /// so much at a time.
    pub fn fetch_window(&mut self, range: ByteRange, plan: &mut Plan) {
        let Some(last) = range.end().checked_sub(1).filter(|last| *last >= range.offset) else { return };
        let sector = |at: u64| at - at % SECTOR_BYTES;
        self.fetch(ByteRange::between(sector(range.offset), sector(last).saturating_add(WINDOW_BYTES)), plan);
    }

    /// The wishes that `range` fulfils, in order, each with its note; it is a range from the plan, so it holds them whole.
    pub fn take(&mut self, range: ByteRange) -> Vec<(ByteRange, T)> {
        let found: Vec<u64> = (self.wishes.range(range.offset..range.end()))
            .filter(|(offset, (len, _))| range.contains(ByteRange::new(**offset, *len)))
            .map(|(offset, _)| *offset)
            .collect();
        (found.into_iter())
            .filter_map(|offset| self.wishes.remove(&offset).map(|(len, note)| (ByteRange::new(offset, len), note)))
            .collect()
    }
}

/// The part of `bytes`, which are those of `whole`, that is in `part`; empty where it is not.
pub(crate) fn part_of(bytes: &[u8], whole: ByteRange, part: ByteRange) -> &[u8] {
    let start = part.offset.checked_sub(whole.offset).and_then(|start| usize::try_from(start).ok());
    let len = usize::try_from(part.len).ok();
    (start.zip(len)).and_then(|(start, len)| bytes.get(start..start.checked_add(len)?)).unwrap_or_default()
}

/// Sorts the ranges, and joins those that overlap or have next to nothing between them.
pub(crate) fn merged(ranges: &mut [ByteRange]) -> Vec<ByteRange> {
    ranges.sort_unstable_by_key(|range| (range.offset, range.len));
    let mut merged: Vec<ByteRange> = Vec::new();
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if range.offset <= last.end().saturating_add(GAP_BYTES) => {
                *last = ByteRange::between(last.offset, last.end().max(range.end()));
            }
            _ => merged.push(*range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_read_and_come_back_apart() {
        let mut asked = Wishes::new(8 << 20);
        asked.wish(ByteRange::new(9000, 100), |at| ("b", at));
        asked.wish(ByteRange::new(5000, 100), |at| ("a", at));
        asked.wish(ByteRange::new(READ_BYTES_MAX - 10, 30), |at| ("c", at));
        asked.wish(ByteRange::new((8 << 20) - 5, 6), |at| ("outside", at));
        let mut plan = Plan::default();
        asked.ask(&mut plan);
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
    fn what_is_asked_for_has_an_end() {
        let mut asked = Wishes::new(1000);
        let mut plan = Plan::default();
        for turn in 0..100 {
            asked.wish(ByteRange::new(turn % 7, 90), |_| ());
            asked.ask(&mut plan);
            asked.take(ByteRange::new(0, 1000));
        }
        assert!(plan.reads.iter().map(|range| range.len).sum::<u64>() <= 1000);
    }
}
