//! Hinted ranges that have not been fetched yet.

use std::collections::VecDeque;

use super::MIB;
use super::cursor::CursorId;
use crate::ByteRange;

/// The maximum number of hints queued; further ones are dropped, as hints may be.
const HINTS_MAX: usize = 64;
/// The largest fetch for a hint.
const FETCH: u64 = MIB;

/// Hinted ranges, first in first out.
#[derive(Default)]
pub(super) struct PrefetchHints {
    ranges: VecDeque<ByteRange>,
}

impl PrefetchHints {
    /// Owns the chunks fetched for hints; no cursor has this id.
    pub(super) const OWNER: CursorId = CursorId(0);

    pub(super) fn push(&mut self, range: ByteRange) {
        if !range.is_empty() && self.ranges.len() < HINTS_MAX {
            self.ranges.push_back(range);
        }
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Returns the range to fetch next.
    pub(super) fn peek(&self) -> Option<ByteRange> {
        self.ranges.front()?.split_at_multiples(FETCH).next()
    }

    /// Removes a range that was [peeked](Self::peek) at and is being fetched.
    pub(super) fn pop(&mut self, range: ByteRange) {
        if let Some(front) = self.ranges.front_mut() {
            *front = ByteRange::between(range.end(), front.end());
            if front.is_empty() {
                self.ranges.pop_front();
            }
        }
    }
}
