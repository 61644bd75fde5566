//! The streams being followed, and the assignment of reads to them.

use std::time::Duration;

use smallvec::SmallVec;

use super::cursor::{Cursor, CursorId, LastUse};
use super::history::{DetectedStream, History};
use super::stats::StreamStats;
use crate::ByteRange;

/// The maximum number of streams followed at once.
const CURSORS: usize = 64;
/// A stream that has not been read from for this long has no claim on memory any more.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// Cursors by their names, sorted.
pub(super) type CursorIds = SmallVec<[CursorId; CURSORS]>;

/// All cursors, and the history of reads that belong to none.
pub(super) struct Cursors {
    size: u64,
    /// A stream that has not been read from while reads took this many bytes has no claim on memory either: it has
    /// probably ended, as that of a file that was read to its end.
    idle_after_bytes: u64,
    /// The bytes that reads have taken.
    taken_bytes: u64,
    cursors: Vec<Cursor>,
    history: History,
    next_id: u64,
    /// The cursor whose turn it is when streams share the window of the link.
    turn: usize,
}

impl Cursors {
    /// No cursors yet, for a device of `size` bytes.
    pub(super) fn new(size: u64, idle_after_bytes: u64) -> Self {
        Self {
            size,
            idle_after_bytes,
            taken_bytes: 0,
            cursors: Vec::with_capacity(CURSORS),
            history: History::new(),
            next_id: 1,
            turn: 0,
        }
    }

    /// Assigns a read to a cursor, if it belongs to a stream. `through` decides whether the gaps of a strided stream
    /// are fetched too.
    pub(super) fn place(
        &mut self,
        read: ByteRange,
        now: Duration,
        through: impl FnOnce(&DetectedStream) -> bool,
    ) -> Option<CursorId> {
        self.taken_bytes = self.taken_bytes.saturating_add(read.len);
        let used = LastUse { at: now, taken_bytes: self.taken_bytes };
        let nearest = self.cursors.iter_mut().filter_map(|cursor| Some((cursor.distance(read)?, cursor)));
        if let Some((_, cursor)) = nearest.min_by_key(|(distance, _)| *distance) {
            let id = cursor.id;
            if cursor.advance(read, used) {
                return Some(id);
            }
            self.cursors.retain(|cursor| cursor.id != id);
        }
        let found = self.history.note(read)?;
        let id = CursorId(self.next_id);
        self.next_id += 1;
        if self.cursors.len() == CURSORS {
            let oldest = (0..CURSORS).min_by_key(|at| self.cursors[*at].used.at)?;
            self.cursors.swap_remove(oldest);
        }
        self.cursors.push(Cursor::new(id, &found, read, through(&found), self.size, used));
        Some(id)
    }

    /// Returns the cursor of the stream whose furthest read is `read`.
    pub(super) fn at(&self, read: ByteRange) -> Option<&Cursor> {
        self.cursors.iter().find(|cursor| cursor.is_at(read))
    }

    pub(super) fn get_mut(&mut self, id: CursorId) -> Option<&mut Cursor> {
        self.cursors.iter_mut().find(|cursor| cursor.id == id)
    }

    /// Returns the number of streams with a claim on memory.
    pub(super) fn active(&self, now: Duration) -> u64 {
        self.cursors.iter().filter(|cursor| self.is_active(cursor, now)).count() as u64
    }

    /// Returns the streams whose chunks may not be dropped.
    pub(super) fn active_ids(&self, now: Duration) -> CursorIds {
        let active = self.cursors.iter().filter(|cursor| self.is_active(cursor, now));
        let mut ids: CursorIds = active.map(|cursor| cursor.id).collect();
        ids.sort_unstable();
        ids
    }

    fn is_active(&self, cursor: &Cursor, now: Duration) -> bool {
        now.saturating_sub(cursor.used.at) < IDLE_AFTER
            && self.taken_bytes - cursor.used.taken_bytes <= self.idle_after_bytes
    }

    /// Returns the `nth` cursor of this round, if it is active.
    pub(super) fn in_turn(&self, nth: usize, now: Duration) -> Option<&Cursor> {
        let count = self.cursors.len();
        let at = (self.turn + nth).checked_rem(count)?;
        self.cursors.get(at).filter(|cursor| self.is_active(cursor, now))
    }

    /// Starts a round one cursor later than the last; returns its length.
    pub(super) fn begin_round(&mut self) -> usize {
        self.turn = self.turn.wrapping_add(1);
        self.cursors.len()
    }

    pub(super) fn stats(&self) -> Vec<StreamStats> {
        let mut latest_first: Vec<&Cursor> = self.cursors.iter().collect();
        latest_first.sort_by_key(|cursor| std::cmp::Reverse(cursor.used.at));
        let stats = |cursor: &&Cursor| StreamStats {
            pattern: cursor.pattern(),
            position: cursor.position(),
            window_bytes: cursor.window(),
        };
        latest_first.iter().map(stats).collect()
    }
}
