//! The cache's entries by offset: ranges held, and ranges in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Urgency;
use super::stats::CacheStats;
use crate::fetch::{PendingFetch, ReadBitmap};
use crate::{ByteRange, Data};

/// The approximate memory an entry takes besides its bytes, so that small ones are not free.
const OVERHEAD_BYTES: u64 = 256;

/// Names a fetch, and the entry made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CacheFetchId(pub(super) u64);

/// Why a range was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A reader waits for it.
    Demand,
    /// It was hinted.
    Hint(Urgency),
}

/// The range of one fetch.
struct CacheEntry {
    id: CacheFetchId,
    range: ByteRange,
    origin: Origin,
    read_bitmap: ReadBitmap,
    state: EntryState,
}

enum EntryState {
    InFlight(Arc<PendingFetch>),
    Held {
        content: EntryContent,
        /// Its share of the budget.
        weight: u64,
        /// Its key in `CacheEntries::by_use`.
        used_at: u64,
    },
}

/// Where an entry's bytes are.
#[derive(Debug, Clone)]
enum EntryContent {
    Memory(Data),
    /// In the file, at their offset on the device, with a digest of each grain.
    File(Arc<[u64]>),
}

/// A part of a read.
#[derive(Debug)]
pub(super) enum CachedPart {
    InMemory(Data),
    /// In the file: `part` of the entry `whole`.
    InFile {
        id: CacheFetchId,
        whole: ByteRange,
        part: ByteRange,
        digests: Arc<[u64]>,
    },
    /// In flight: `part`, counted from the start of the fetch; `range` on the device.
    InFlight {
        pending: Arc<PendingFetch>,
        part: ByteRange,
        range: ByteRange,
    },
    Absent(ByteRange),
}

pub(super) type CachedParts = SmallVec<[CachedPart; 2]>;

/// Entries never overlap. Those held weigh no more than the budget.
pub(super) struct CacheEntries {
    budget: u64,
    entries: BTreeMap<u64, CacheEntry>,
    /// Offsets of the entries held, least recently used first.
    by_use: BTreeMap<u64, u64>,
    weight: u64,
    clock: u64,
    /// Ranges evicted that may be in a file.
    dropped: Vec<ByteRange>,
}

impl CacheEntries {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, entries: BTreeMap::new(), by_use: BTreeMap::new(), weight: 0, clock: 0, dropped: Vec::new() }
    }

    /// Returns the bytes held, as the budget counts them.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// Cuts a read along the entries. With `counts`, the entries it touches count as read.
    pub(super) fn look_up(&mut self, range: ByteRange, counts: bool, stats: &mut CacheStats) -> CachedParts {
        let mut parts = CachedParts::new();
        let mut at = range.offset;
        let first = self.first_touching(range);
        for entry in self.entries.range_mut(first..range.end()).map(|(_, entry)| entry) {
            let Some(common) = entry.range.intersection(range) else { continue };
            if common.offset > at {
                parts.push(CachedPart::Absent(ByteRange::between(at, common.offset)));
            }
            at = common.end();
            if counts {
                entry.mark_read(common, stats);
            }
            let part = ByteRange::new(common.offset - entry.range.offset, common.len);
            if let EntryState::Held { used_at, .. } = &mut entry.state {
                self.by_use.remove(used_at);
                self.clock += 1;
                *used_at = self.clock;
                self.by_use.insert(self.clock, entry.range.offset);
            }
            parts.push(match &entry.state {
                EntryState::InFlight(pending) => {
                    CachedPart::InFlight { pending: Arc::clone(pending), part, range: common }
                }
                EntryState::Held { content: EntryContent::Memory(data), .. } => {
                    CachedPart::InMemory(data.slice(part.offset, part.len))
                }
                EntryState::Held { content: EntryContent::File(digests), .. } => {
                    CachedPart::InFile { id: entry.id, whole: entry.range, part: common, digests: Arc::clone(digests) }
                }
            });
        }
        if at < range.end() {
            parts.push(CachedPart::Absent(ByteRange::between(at, range.end())));
        }
        parts
    }

    /// Returns the parts of the range that are neither held nor in flight.
    pub(super) fn absent(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        let mut absent = SmallVec::new();
        let mut at = range.offset;
        for entry in self.entries.range(self.first_touching(range)..range.end()).map(|(_, entry)| entry) {
            if entry.range.offset > at {
                absent.push(ByteRange::between(at, entry.range.offset));
            }
            at = at.max(entry.range.end());
        }
        if at < range.end() {
            absent.push(ByteRange::between(at, range.end()));
        }
        absent
    }

    /// Whether all of the range is held.
    pub(super) fn holds(&self, range: ByteRange) -> bool {
        let mut at = range.offset;
        for entry in self.entries.range(self.first_touching(range)..range.end()).map(|(_, entry)| entry) {
            if entry.range.offset > at || !matches!(entry.state, EntryState::Held { .. }) {
                return false;
            }
            at = at.max(entry.range.end());
        }
        at >= range.end()
    }

    /// Returns the offset of the first entry that may overlap the range.
    fn first_touching(&self, range: ByteRange) -> u64 {
        match self.entries.range(..=range.offset).next_back() {
            Some((offset, entry)) if entry.range.end() > range.offset => *offset,
            _ => range.offset,
        }
    }

    /// Adds an entry in flight for a range that is [`absent`](Self::absent).
    pub(super) fn start_fetch(&mut self, id: CacheFetchId, range: ByteRange, origin: Origin) -> Arc<PendingFetch> {
        debug_assert!(self.absent(range).as_slice() == [range], "{range} is held or in flight already");
        let pending = Arc::<PendingFetch>::default();
        let state = EntryState::InFlight(Arc::clone(&pending));
        self.entries.insert(range.offset, CacheEntry { id, range, origin, state, read_bitmap: ReadBitmap::default() });
        pending
    }

    /// Holds the data of a finished fetch; without data, forgets the entry.
    pub(super) fn finish_fetch(
        &mut self,
        id: CacheFetchId,
        range: ByteRange,
        data: Option<Data>,
        stats: &mut CacheStats,
    ) {
        let Some(entry) = self.entries.get_mut(&range.offset).filter(|entry| entry.id == id) else { return };
        debug_assert!(matches!(entry.state, EntryState::InFlight(_)), "{range} has been fetched already");
        let Some(data) = data else {
            self.entries.remove(&range.offset);
            return;
        };
        match entry.origin {
            Origin::Demand => stats.demanded_bytes += range.len,
            Origin::Hint(urgency) => {
                let hinted = &mut stats.hinted[urgency as usize];
                hinted.bytes += range.len;
                hinted.used_bytes += entry.read_bitmap.bytes(range.len);
            }
        }
        let weight = OVERHEAD_BYTES + memory_bytes(&data);
        self.clock += 1;
        entry.state = EntryState::Held { content: EntryContent::Memory(data), weight, used_at: self.clock };
        self.weight += weight;
        self.by_use.insert(self.clock, range.offset);
        self.evict(stats);
    }

    /// Replaces an entry's data by the digests of the same data in the file.
    pub(super) fn stored(&mut self, id: CacheFetchId, range: ByteRange, digests: Arc<[u64]>) {
        let entry = self.entries.get_mut(&range.offset).filter(|entry| entry.id == id);
        if let Some(CacheEntry { state: EntryState::Held { content, .. }, .. }) = entry {
            *content = EntryContent::File(digests);
        }
    }

    /// Forgets the entry of a fetch; returns whether it was still there.
    pub(super) fn forget(&mut self, id: CacheFetchId, range: ByteRange) -> bool {
        let known = self.entries.get(&range.offset).is_some_and(|entry| entry.id == id);
        if known {
            self.remove(range.offset);
        }
        known
    }

    /// Returns the ranges removed since the last call.
    pub(super) fn take_dropped(&mut self) -> Vec<ByteRange> {
        std::mem::take(&mut self.dropped)
    }

    /// Drops the least recently used entries until the rest fits the budget.
    fn evict(&mut self, stats: &mut CacheStats) {
        while self.weight > self.budget {
            let Some(oldest) = self.by_use.values().next().copied() else { return };
            stats.evicted_bytes += self.remove(oldest);
        }
    }

    /// Removes an entry that is held; returns its length.
    fn remove(&mut self, offset: u64) -> u64 {
        let Some(entry) = self.entries.remove(&offset) else { return 0 };
        if let EntryState::Held { weight, used_at, .. } = entry.state {
            let indexed = self.by_use.remove(&used_at);
            debug_assert_eq!(indexed, Some(offset), "every held entry is in the index by use");
            debug_assert!(self.weight >= weight);
            self.weight -= weight;
        }
        debug_assert!(self.weight > 0 || self.by_use.is_empty(), "entries have a weight");
        self.dropped.push(entry.range);
        entry.range.len
    }
}

impl CacheEntry {
    /// Notes that `part` of the device has been read.
    fn mark_read(&mut self, part: ByteRange, stats: &mut CacheStats) {
        let Origin::Hint(urgency) = self.origin else { return };
        let before = self.read_bitmap.bytes(self.range.len);
        self.read_bitmap.mark(ByteRange::new(part.offset - self.range.offset, part.len), self.range.len);
        // Bytes in flight are counted when they arrive.
        if let EntryState::Held { .. } = self.state {
            stats.hinted[urgency as usize].used_bytes += self.read_bitmap.bytes(self.range.len) - before;
        }
    }
}

/// Returns the memory that data takes: zeros take none.
fn memory_bytes(data: &Data) -> u64 {
    data.parts().iter().filter(|part| matches!(part, crate::data::Part::Bytes(_))).map(|part| part.len()).sum()
}
