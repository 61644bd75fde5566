//! Writes in flight, and ranges that may change during a fetch.

use crate::ByteRange;

/// With more ranges than this, nothing is fetched ahead at all, so that the lists stay short.
const RANGES_MAX: usize = 128;

/// The writes in flight. Nothing that overlaps one is fetched ahead: it would be dropped when the write ends.
#[derive(Default)]
pub(super) struct ActiveWrites {
    active: Vec<(WriteId, ByteRange)>,
    /// Ranges of writes that failed or were cancelled. Such a write may still take effect at the far end at any later
    /// time, which would make data fetched before that stale, so these ranges are never fetched ahead again.
    doubtful: Vec<ByteRange>,
    /// There were more ranges than are kept, so none is known to be safe any more. This is final: ranges that
    /// are kept may merge and become few again, but those that were not kept remain doubtful.
    overflowed: bool,
    next: u64,
}

/// Names a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteId(u64);

impl ActiveWrites {
    pub(super) fn begin(&mut self, range: ByteRange) -> WriteId {
        let id = WriteId(self.next);
        self.next += 1;
        self.active.push((id, range));
        id
    }

    /// Ends a write; `done` unless it failed or was cancelled. Returns its range.
    pub(super) fn end(&mut self, id: WriteId, done: bool) -> Option<ByteRange> {
        let at = self.active.iter().position(|(known, _)| *known == id)?;
        let (_, range) = self.active.swap_remove(at);
        if !done {
            self.doubt(range);
        }
        Some(range)
    }

    fn doubt(&mut self, mut range: ByteRange) {
        if self.overflowed {
            return;
        }
        self.doubtful.retain(|other| {
            let touching = other.offset <= range.end() && range.offset <= other.end();
            if touching {
                range = ByteRange::between(range.offset.min(other.offset), range.end().max(other.end()));
            }
            !touching
        });
        if self.doubtful.len() < RANGES_MAX {
            self.doubtful.push(range);
        } else {
            self.overflowed = true;
            self.doubtful = Vec::new();
        }
    }

    /// Whether a fetch of the range that starts now returns content that stays valid.
    pub(super) fn allow(&self, range: ByteRange) -> bool {
        if self.overflowed {
            return false;
        }
        let mut ranges = self.active.iter().map(|(_, range)| range).chain(&self.doubtful);
        self.active.len() + self.doubtful.len() <= RANGES_MAX && !ranges.any(|r| r.intersection(range).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_not_fetched_during_a_write_nor_ever_after_a_failed_one() {
        let mut writes = ActiveWrites::default();
        let range = ByteRange::new(100, 10);
        let first = writes.begin(range);
        assert!(!writes.allow(ByteRange::new(0, 101)) && writes.allow(ByteRange::new(110, 10)));
        assert_eq!(writes.end(first, true), Some(range));
        assert!(writes.allow(range));

        let second = writes.begin(range);
        writes.end(second, false);
        let third = writes.begin(range);
        writes.end(third, true);
        assert!(!writes.allow(range));
    }

    #[test]
    fn adjacent_doubtful_ranges_merge_and_too_many_stop_all_fetches() {
        let mut writes = ActiveWrites::default();
        let mut fail = |offset| {
            let id = writes.begin(ByteRange::new(offset, 10));
            writes.end(id, false);
            (writes.doubtful.len(), writes.allow(ByteRange::new(1 << 40, 1)))
        };
        assert_eq!((0..1000).map(|i| fail(i * 10)).last(), Some((1, true)));
        let last = (0..200).map(|i| fail(20_000 + i * 20)).last().unwrap();
        assert!(!last.1);
    }

    #[test]
    fn doubtful_ranges_beyond_the_limit_stop_fetches_even_after_others_merge() {
        let mut writes = ActiveWrites::default();
        let mut fail = |range| {
            let id = writes.begin(range);
            writes.end(id, false);
        };
        (0..150).for_each(|i| fail(ByteRange::new(i * 20, 10)));
        fail(ByteRange::new(0, 100 * 20));
        assert!(!writes.allow(ByteRange::new(149 * 20, 10)));
        assert!(!writes.allow(ByteRange::new(1 << 40, 1)));
    }
}
