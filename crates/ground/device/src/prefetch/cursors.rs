//! The streams being followed, and the assignment of reads to them.

use std::time::Duration;

use super::cursor::{Cursor, CursorId};
use super::history::{DetectedStream, History};
use super::stats::StreamStats;
use crate::ByteRange;

/// The maximum number of streams followed at once.
const CURSORS: usize = 64;
/// A stream that has not been read from for this long has no claim on memory any more.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// All cursors, and the history of reads that belong to none.
pub(super) struct Cursors {
    size: u64,
    cursors: Vec<Cursor>,
    history: History,
    next_id: u64,
    /// The cursor whose turn it is when streams share the window of the link.
    turn: usize,
}

impl Cursors {
    /// No cursors yet, for a device of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        Self { size, cursors: Vec::with_capacity(CURSORS), history: History::new(), next_id: 1, turn: 0 }
    }

    /// Assigns a read to a cursor, if it belongs to a stream. `through` decides whether the gaps of a strided stream
    /// are fetched too.
    pub(super) fn place(
        &mut self,
        read: ByteRange,
        now: Duration,
        through: impl FnOnce(&DetectedStream) -> bool,
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

    /// Returns the cursor of the stream whose furthest read is `read`.
    pub(super) fn at(&self, read: ByteRange) -> Option<&Cursor> {
        self.cursors.iter().find(|cursor| cursor.is_at(read))
    }

    pub(super) fn get_mut(&mut self, id: CursorId) -> Option<&mut Cursor> {
        self.cursors.iter_mut().find(|cursor| cursor.id == id)
    }

    /// Returns the number of streams with a claim on memory.
    pub(super) fn active(&self, now: Duration) -> u64 {
        self.cursors.iter().filter(|cursor| is_active(cursor, now)).count() as u64
    }

    /// Whether the chunks of that cursor may be dropped.
    pub(super) fn is_idle(&self, id: CursorId, now: Duration) -> bool {
        !self.cursors.iter().any(|cursor| cursor.id == id && is_active(cursor, now))
    }

    /// Returns the `nth` cursor of this round, if it is active.
    pub(super) fn in_turn(&mut self, nth: usize, now: Duration) -> Option<&mut Cursor> {
        let count = self.cursors.len();
        let at = (self.turn + nth).checked_rem(count)?;
        self.cursors.get_mut(at).filter(|cursor| is_active(cursor, now))
    }

    /// Starts a round one cursor later than the last; returns its length.
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
