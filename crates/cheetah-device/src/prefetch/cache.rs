//! What has been fetched ahead, or is being fetched, within one budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::chunk::{Chunk, FetchId, Landing, State};
use super::cursor::CursorId;
use super::stats::PrefetchStats;
use crate::{ByteRange, Data};

/// Chunks that have been read are kept in this share of the budget, for whoever reads them again.
const SHARE_CONSUMED: u64 = 8;
/// Chunks looked at in search of one that may be dropped.
const SEARCH_MAX: usize = 64;

/// A read, cut by what is known of its bytes; in order, and nothing is missing between.
pub(super) type Pieces = SmallVec<[Piece; 1]>;

/// A piece of a read.
#[derive(Debug)]
pub(super) enum Piece {
    /// Held.
    Here(Data),
    /// Part of a fetch on its way.
    Flying {
        landing: Arc<Landing>,
        /// The piece, counted from the start of that fetch.
        part: ByteRange,
        /// The piece on the device, to be read from there should the fetch fail.
        range: ByteRange,
    },
    /// To be had from the device only.
    Missing(ByteRange),
}

/// Chunks by offset; they never overlap, and never take more than the budget with those that are on their way.
pub(super) struct Cache {
    budget: u64,
    chunks: BTreeMap<u64, Chunk>,
    /// Offsets of the chunks that are here, oldest first: those that have been read in full, and the others.
    consumed: BTreeMap<FetchId, u64>,
    unread: BTreeMap<FetchId, u64>,
    consumed_bytes: u64,
    held: u64,
    /// Bytes of fetches on their way, whether or not anyone still wants them.
    in_flight: u64,
}

impl Cache {
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

    /// What streams may share among them.
    pub(super) fn budget_unread(&self) -> u64 {
        self.budget - self.budget / SHARE_CONSUMED
    }

    /// Cuts a read, and counts what it touches as used. Empty if nothing is known of any of its bytes.
    pub(super) fn read(&mut self, range: ByteRange, stats: &mut PrefetchStats) -> Pieces {
        let mut pieces = Pieces::new();
        let mut at = range.offset;
        let mut finished: SmallVec<[FetchId; 4]> = SmallVec::new();
        let first = self.first_touching(range);
        for chunk in self.chunks.range_mut(first..range.end()).map(|(_, chunk)| chunk) {
            let Some(common) = chunk.range.intersection(range) else { continue };
            if common.offset > at {
                pieces.push(Piece::Missing(ByteRange::between(at, common.offset)));
            }
            at = common.end();
            let before = chunk.used();
            chunk.touch(common);
            let part = ByteRange::new(common.offset - chunk.range.offset, common.len);
            pieces.push(match &chunk.state {
                State::Flying(landing) => Piece::Flying { landing: Arc::clone(landing), part, range: common },
                State::Here(data) => {
                    stats.used_bytes += chunk.used() - before;
                    if chunk.used() == chunk.range.len && before < chunk.range.len {
                        finished.push(chunk.id);
                    }
                    Piece::Here(data.slice(part.offset, part.len))
                }
            });
        }
        if !pieces.is_empty() && at < range.end() {
            pieces.push(Piece::Missing(ByteRange::between(at, range.end())));
        }
        for id in finished {
            if let Some(offset) = self.unread.remove(&id) {
                self.consume(id, offset, stats);
            }
        }
        pieces
    }

    /// Whether all of the range is here.
    pub(super) fn holds(&self, range: ByteRange) -> bool {
        let chunks = self.chunks.range(self.first_touching(range)..range.end()).map(|(_, chunk)| chunk);
        let mut at = range.offset;
        for chunk in chunks {
            if chunk.range.offset > at || !matches!(chunk.state, State::Here(_)) {
                return false;
            }
            at = at.max(chunk.range.end());
        }
        at >= range.end()
    }

    /// Parts of the range that are neither here nor on their way.
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

    /// Offset of the first chunk that may overlap the range.
    fn first_touching(&self, range: ByteRange) -> u64 {
        match self.chunks.range(..=range.offset).next_back() {
            Some((offset, chunk)) if chunk.range.end() > range.offset => *offset,
            _ => range.offset,
        }
    }

    /// Makes room for `len` bytes more, by dropping what was read, then what is `idle`. False if there is none.
    pub(super) fn make_room(&mut self, len: u64, idle: impl Fn(CursorId) -> bool, stats: &mut PrefetchStats) -> bool {
        while (self.held + self.in_flight).saturating_add(len) > self.budget {
            let idle_chunk = |(_, offset): (&FetchId, &u64)| {
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

    /// A fetch sets out for a range that is [`absent`](Self::absent); who waits for it waits at the landing.
    pub(super) fn take_off(&mut self, id: FetchId, owner: CursorId, range: ByteRange) -> Arc<Landing> {
        self.in_flight += range.len;
        let landing = Arc::default();
        self.chunks.insert(range.offset, Chunk::flying(id, owner, range, Arc::clone(&landing)));
        landing
    }

    /// The fetch of that id and range is over. The data is kept if it is still wanted.
    pub(super) fn land(&mut self, id: FetchId, range: ByteRange, data: Option<Data>, stats: &mut PrefetchStats) {
        self.in_flight -= range.len;
        if data.is_some() {
            stats.prefetched_bytes += range.len;
        }
        let Some(chunk) = self.chunks.get_mut(&range.offset).filter(|chunk| chunk.id == id) else {
            // Invalidated on its way.
            if data.is_some() {
                stats.unused_bytes += range.len;
            }
            return;
        };
        let Some(data) = data else {
            self.chunks.remove(&range.offset);
            return;
        };
        chunk.state = State::Here(data);
        self.held += range.len;
        stats.used_bytes += chunk.used();
        if chunk.used() == range.len {
            self.consume(id, range.offset, stats);
        } else {
            self.unread.insert(id, range.offset);
        }
    }

    /// Files a chunk that has been read in full, and drops the oldest such beyond their share.
    fn consume(&mut self, id: FetchId, offset: u64, stats: &mut PrefetchStats) {
        self.consumed.insert(id, offset);
        self.consumed_bytes += self.chunks.get(&offset).map_or(0, |chunk| chunk.range.len);
        while self.consumed_bytes > self.budget / SHARE_CONSUMED {
            match self.consumed.values().next().copied() {
                Some(oldest) => self.remove(oldest, stats),
                None => return,
            }
        }
    }

    /// Forgets everything that overlaps the range. A fetch on its way there will find itself unwanted.
    pub(super) fn invalidate(&mut self, range: ByteRange, stats: &mut PrefetchStats) {
        let first = self.first_touching(range);
        while let Some(offset) = self.chunks.range(first..range.end()).next().map(|(offset, _)| *offset) {
            self.remove(offset, stats);
        }
    }

    fn remove(&mut self, offset: u64, stats: &mut PrefetchStats) {
        let Some(chunk) = self.chunks.remove(&offset) else { return };
        if let State::Flying(_) = chunk.state {
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
