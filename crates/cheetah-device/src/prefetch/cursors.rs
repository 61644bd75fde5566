//! The streams being followed, and which read belongs to which.

use std::time::Duration;

use super::cursor::{Cursor, CursorId};
use super::history::{Found, History};
use super::stats::StreamStats;
use crate::ByteRange;

/// Streams followed at once.
const CURSORS: usize = 64;
/// A stream nobody has read from for so long has no claim on memory any more.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// All cursors, and the reads that may become some.
pub(super) struct Cursors {
    size: u64,
    cursors: Vec<Cursor>,
    history: History,
    next_id: u64,
    /// Whose turn it is when streams share what the link has room for.
    turn: usize,
}

impl Cursors {
    /// For a device of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        Self { size, cursors: Vec::with_capacity(CURSORS), history: History::new(), next_id: 1, turn: 0 }
    }

    /// Places a read: the cursor it belongs to, if any. `through` says whether a strided stream's gaps are to be
    /// fetched as well.
    pub(super) fn place(
        &mut self,
        read: ByteRange,
        now: Duration,
        through: impl FnOnce(&Found) -> bool,
    ) -> Option<CursorId> {
        let nearest = self.cursors.iter_mut().filter_map(|cursor| Some((cursor.distance(read)?, cursor)));
        if let Some((_, cursor)) = nearest.min_by_key(|(distance, _)| *distance) {
            let id = cursor.id;
            if cursor.advance(read, now) {
                return Some(id);
            }
            self.cursors.retain(|cursor| cursor.id != id);
        }
        let found = self.history.note(read)?;
        let id = CursorId(self.next_id);
        self.next_id += 1;
        if self.cursors.len() == CURSORS {
            let oldest = (0..CURSORS).min_by_key(|at| self.cursors[*at].used_at)?;
            self.cursors.swap_remove(oldest);
        }
        self.cursors.push(Cursor::new(id, &found, read, through(&found), self.size, now));
        Some(id)
    }

    /// The cursor of the stream whose latest read is `read`.
    pub(super) fn at(&self, read: ByteRange) -> Option<&Cursor> {
        self.cursors.iter().find(|cursor| cursor.is_at(read))
    }

    pub(super) fn get_mut(&mut self, id: CursorId) -> Option<&mut Cursor> {
        self.cursors.iter_mut().find(|cursor| cursor.id == id)
    }

    /// How many have a claim on memory.
    pub(super) fn active(&self, now: Duration) -> u64 {
        self.cursors.iter().filter(|cursor| is_active(cursor, now)).count() as u64
    }

    /// Whether what was fetched for that cursor may be dropped.
    pub(super) fn is_idle(&self, id: CursorId, now: Duration) -> bool {
        !self.cursors.iter().any(|cursor| cursor.id == id && is_active(cursor, now))
    }

    /// The active cursor whose turn it is, the `nth` of this round.
    pub(super) fn in_turn(&mut self, nth: usize, now: Duration) -> Option<&mut Cursor> {
        let count = self.cursors.len();
        let at = (self.turn + nth).checked_rem(count)?;
        self.cursors.get_mut(at).filter(|cursor| is_active(cursor, now))
    }

    /// Cursors in a round; the next one begins with the next of them.
    pub(super) fn begin_round(&mut self) -> usize {
        self.turn = self.turn.wrapping_add(1);
        self.cursors.len()
    }

    pub(super) fn stats(&self) -> Vec<StreamStats> {
        let mut latest_first: Vec<&Cursor> = self.cursors.iter().collect();
        latest_first.sort_by_key(|cursor| std::cmp::Reverse(cursor.used_at));
        let stats = |cursor: &&Cursor| StreamStats {
            pattern: cursor.pattern(),
            position: cursor.position(),
            window_bytes: cursor.window(),
        };
        latest_first.iter().map(stats).collect()
    }
}

fn is_active(cursor: &Cursor, now: Duration) -> bool {
    now.saturating_sub(cursor.used_at) < IDLE_AFTER
}
