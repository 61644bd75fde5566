//! Prefetched data, and fetches in flight, within one budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::chunk::{ChunkState, PrefetchId, PrefetchedChunk};
use super::cursor::CursorId;
use super::stats::PrefetchStats;
use crate::fetch::PendingFetch;
use crate::{ByteRange, Data};

/// The share of the budget for chunks that have been read, in case they are read again.
const SHARE_CONSUMED: u64 = 8;
/// The maximum number of chunks examined in search of one that may be dropped.
const SEARCH_MAX: usize = 64;

/// The parts of a read, in order and without gaps.
pub(super) type PrefetchedParts = SmallVec<[PrefetchedPart; 1]>;

/// A part of a read.
#[derive(Debug)]
pub(super) enum PrefetchedPart {
    Held(Data),
    /// Part of a fetch in flight.
    InFlight {
        pending: Arc<PendingFetch>,
        /// The part, counted from the start of that fetch.
        part: ByteRange,
        /// The part on the device, to be read from there if the fetch fails.
        range: ByteRange,
    },
    Absent(ByteRange),
}

/// Chunks by offset. They never overlap, and never take more than the budget, those in flight included.
pub(super) struct ChunkCache {
    budget: u64,
    chunks: BTreeMap<u64, PrefetchedChunk>,
    /// Offsets of the chunks held, oldest first: those that have been read in full, and the others.
    consumed: BTreeMap<PrefetchId, u64>,
    unread: BTreeMap<PrefetchId, u64>,
    consumed_bytes: u64,
    held: u64,
    /// Bytes of fetches in flight, whether or not their chunks are still wanted.
    in_flight: u64,
}

impl ChunkCache {
    pub(super) fn new(budget: u64) -> Self {
        Self {
            budget,
            chunks: BTreeMap::new(),
            consumed: BTreeMap::new(),
            unread: BTreeMap::new(),
            consumed_bytes: 0,
            held: 0,
            in_flight: 0,
        }
    }

    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the part of the budget that streams share.
    pub(super) fn budget_unread(&self) -> u64 {
        self.budget - self.budget / SHARE_CONSUMED
    }

    /// Cuts a read along the chunks, and marks the chunks it touches as used. Empty if it touches none.
    pub(super) fn read(&mut self, range: ByteRange, stats: &mut PrefetchStats) -> PrefetchedParts {
        let mut parts = PrefetchedParts::new();
        let mut at = range.offset;
        let mut finished: SmallVec<[PrefetchId; 4]> = SmallVec::new();
        let first = self.first_touching(range);
        for chunk in self.chunks.range_mut(first..range.end()).map(|(_, chunk)| chunk) {
            let Some(common) = chunk.range.intersection(range) else { continue };
            if common.offset > at {
                parts.push(PrefetchedPart::Absent(ByteRange::between(at, common.offset)));
            }
            at = common.end();
            let before = chunk.used();
            chunk.mark_read(common);
            let part = ByteRange::new(common.offset - chunk.range.offset, common.len);
            parts.push(match &chunk.state {
                ChunkState::InFlight(pending) => {
                    PrefetchedPart::InFlight { pending: Arc::clone(pending), part, range: common }
                }
                ChunkState::Held(data) => {
                    stats.used_bytes += chunk.used() - before;
                    if chunk.used() == chunk.range.len && before < chunk.range.len {
                        finished.push(chunk.id);
                    }
                    PrefetchedPart::Held(data.slice(part.offset, part.len))
                }
            });
        }
        if !parts.is_empty() && at < range.end() {
            parts.push(PrefetchedPart::Absent(ByteRange::between(at, range.end())));
        }
        for id in finished {
            if let Some(offset) = self.unread.remove(&id) {
                self.consume(id, offset, stats);
            }
        }
        parts
    }

    /// Whether all of the range is held.
    pub(super) fn holds(&self, range: ByteRange) -> bool {
        let chunks = self.chunks.range(self.first_touching(range)..range.end()).map(|(_, chunk)| chunk);
        let mut at = range.offset;
        for chunk in chunks {
            if chunk.range.offset > at || !matches!(chunk.state, ChunkState::Held(_)) {
                return false;
            }
            at = at.max(chunk.range.end());
        }
        at >= range.end()
    }

    /// Returns the parts of the range that are neither held nor in flight.
    pub(super) fn absent(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        let mut absent = SmallVec::new();
        let mut at = range.offset;
        for chunk in self.chunks.range(self.first_touching(range)..range.end()).map(|(_, chunk)| chunk) {
            if chunk.range.offset > at {
                absent.push(ByteRange::between(at, chunk.range.offset));
            }
            at = at.max(chunk.range.end());
        }
        if at < range.end() {
            absent.push(ByteRange::between(at, range.end()));
        }
        absent
    }

    /// Returns the offset of the first chunk that may overlap the range.
    fn first_touching(&self, range: ByteRange) -> u64 {
        match self.chunks.range(..=range.offset).next_back() {
            Some((offset, chunk)) if chunk.range.end() > range.offset => *offset,
            _ => range.offset,
        }
    }

    /// Whether something must be dropped to hold `len` more bytes.
    pub(super) fn lacks_room(&self, len: u64) -> bool {
        (self.held + self.in_flight).saturating_add(len) > self.budget
    }

    /// Makes room for `len` bytes by dropping chunks that were read, then those of `idle` streams. Returns false if
    /// that does not suffice.
    pub(super) fn make_room(&mut self, len: u64, idle: impl Fn(CursorId) -> bool, stats: &mut PrefetchStats) -> bool {
        while self.lacks_room(len) {
            let idle_chunk = |(_, offset): (&PrefetchId, &u64)| {
                self.chunks.get(offset).is_some_and(|chunk| idle(chunk.owner)).then_some(*offset)
            };
            let oldest = self.consumed.values().next().copied();
            match oldest.or_else(|| self.unread.iter().take(SEARCH_MAX).find_map(idle_chunk)) {
                Some(offset) => self.remove(offset, stats),
                None => return false,
            }
        }
        true
    }

    /// Adds a chunk in flight for a range that is [`absent`](Self::absent).
    pub(super) fn start_fetch(&mut self, id: PrefetchId, owner: CursorId, range: ByteRange) -> Arc<PendingFetch> {
        debug_assert!(self.absent(range).as_slice() == [range], "{range} is held or in flight already");
        self.in_flight += range.len;
        let pending = Arc::default();
        self.chunks.insert(range.offset, PrefetchedChunk::in_flight(id, owner, range, Arc::clone(&pending)));
        pending
    }

    /// Holds the data of a finished fetch, if its chunk is still wanted.
    pub(super) fn finish_fetch(
        &mut self,
        id: PrefetchId,
        range: ByteRange,
        data: Option<Data>,
        stats: &mut PrefetchStats,
    ) {
        self.in_flight -= range.len;
        if data.is_some() {
            stats.prefetched_bytes += range.len;
        }
        let Some(chunk) = self.chunks.get_mut(&range.offset).filter(|chunk| chunk.id == id) else {
            // Invalidated in flight.
            if data.is_some() {
                stats.unused_bytes += range.len;
            }
            return;
        };
        let Some(data) = data else {
            self.chunks.remove(&range.offset);
            return;
        };
        chunk.state = ChunkState::Held(data);
        self.held += range.len;
        stats.used_bytes += chunk.used();
        if chunk.used() == range.len {
            self.consume(id, range.offset, stats);
        } else {
            self.unread.insert(id, range.offset);
        }
    }

    /// Notes that a chunk has been read in full, and drops the oldest of these beyond their share.
    fn consume(&mut self, id: PrefetchId, offset: u64, stats: &mut PrefetchStats) {
        self.consumed.insert(id, offset);
        self.consumed_bytes += self.chunks.get(&offset).map_or(0, |chunk| chunk.range.len);
        while self.consumed_bytes > self.budget / SHARE_CONSUMED {
            match self.consumed.values().next().copied() {
                Some(oldest) => self.remove(oldest, stats),
                None => return,
            }
        }
    }

    /// Drops every chunk that overlaps the range. Data of a fetch in flight there will not be kept.
    pub(super) fn invalidate(&mut self, range: ByteRange, stats: &mut PrefetchStats) {
        let first = self.first_touching(range);
        while let Some(offset) = self.chunks.range(first..range.end()).next().map(|(offset, _)| *offset) {
            self.remove(offset, stats);
        }
    }

    fn remove(&mut self, offset: u64, stats: &mut PrefetchStats) {
        let Some(chunk) = self.chunks.remove(&offset) else { return };
        if let ChunkState::InFlight(_) = chunk.state {
            return;
        }
        self.held -= chunk.range.len;
        stats.unused_bytes += chunk.range.len - chunk.used();
        if self.consumed.remove(&chunk.id).is_some() {
            self.consumed_bytes -= chunk.range.len;
        }
        self.unread.remove(&chunk.id);
    }
}
