//! Ranges someone has said will be read soon.

use std::collections::VecDeque;

use super::MIB;
use super::cursor::CursorId;
use crate::ByteRange;

/// Hints remembered; further ones are forgotten, as hints may be.
const HINTS_MAX: usize = 64;
/// They are fetched in runs of this many bytes.
const FETCH: u64 = MIB;

/// What is left of the hints, in the order they came.
#[derive(Default)]
pub(super) struct Hints {
    ranges: VecDeque<ByteRange>,
}

impl Hints {
    /// Owns what is fetched for hints; no cursor has this id.
    pub(super) const OWNER: CursorId = CursorId(0);

    pub(super) fn push(&mut self, range: ByteRange) {
        if !range.is_empty() && self.ranges.len() < HINTS_MAX {
            self.ranges.push_back(range);
        }
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// What to fetch next.
    pub(super) fn peek(&self) -> Option<ByteRange> {
        self.ranges.front()?.split_at_multiples(FETCH).next()
    }

    /// What was peeked at is being fetched.
    pub(super) fn pop(&mut self, range: ByteRange) {
        if let Some(front) = self.ranges.front_mut() {
            *front = ByteRange::between(range.end(), front.end());
            if front.is_empty() {
                self.ranges.pop_front();
            }
        }
    }
}
