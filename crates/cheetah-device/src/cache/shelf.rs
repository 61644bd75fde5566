//! What is kept, and what is on its way, by offset.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Urgency;
use super::stats::CacheStats;
use crate::prefetch::chunk::{Landing, Touched};
use crate::{ByteRange, Data};

/// What an entry takes besides its bytes; about right, so that small ones are not free.
const OVERHEAD_BYTES: u64 = 256;

/// Names a fetch, and the entry made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FetchId(pub(super) u64);

/// A run of bytes that came, or will come, in one request.
struct Entry {
    id: FetchId,
    range: ByteRange,
    /// Who wished for it; `None` if it was read.
    wished: Option<Urgency>,
    state: State,
    touched: Touched,
    /// What it counts for in the budget.
    weight: u64,
    /// When it was last used; counts up.
    used_at: u64,
}

enum State {
    Flying(Arc<Landing>),
    Held(Content),
}

/// Where an entry's bytes are.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Here.
    Memory(Data),
    /// In the file, at the place they have on the device; with a digest of each grain.
    File(Arc<[u64]>),
}

/// A part of a read, as far as the shelf knows of it.
#[derive(Debug)]
pub(super) enum Found {
    Here(Data),
    /// In the file: `part` of the entry `whole`.
    Stored {
        id: FetchId,
        whole: ByteRange,
        part: ByteRange,
        digests: Arc<[u64]>,
    },
    /// On its way: `part`, counted from the start of what will land; `range` on the device.
    Flying {
        landing: Arc<Landing>,
        part: ByteRange,
        range: ByteRange,
    },
    Absent(ByteRange),
}

pub(super) type Finds = SmallVec<[Found; 2]>;

/// Entries never overlap. Those held weigh no more than the budget.
pub(super) struct Shelf {
    budget: u64,
    entries: BTreeMap<u64, Entry>,
    /// Offsets of those held, by when they were last used.
    by_use: BTreeMap<u64, u64>,
    weight: u64,
    clock: u64,
    /// What was dropped and may lie in a file.
    dropped: Vec<ByteRange>,
}

impl Shelf {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, entries: BTreeMap::new(), by_use: BTreeMap::new(), weight: 0, clock: 0, dropped: Vec::new() }
    }

    /// Bytes held, as the budget counts them.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// Cuts a read by what is known of its bytes. With `counts`, what it touches has been read.
    pub(super) fn look(&mut self, range: ByteRange, counts: bool, stats: &mut CacheStats) -> Finds {
        let mut finds = Finds::new();
        let mut at = range.offset;
        let first = self.first_touching(range);
        for entry in self.entries.range_mut(first..range.end()).map(|(_, entry)| entry) {
            let Some(common) = entry.range.intersection(range) else { continue };
            if common.offset > at {
                finds.push(Found::Absent(ByteRange::between(at, common.offset)));
            }
            at = common.end();
            if counts {
                entry.touch(common, stats);
            }
            let part = ByteRange::new(common.offset - entry.range.offset, common.len);
            if let State::Held(_) = entry.state {
                self.by_use.remove(&entry.used_at);
                self.clock += 1;
                entry.used_at = self.clock;
                self.by_use.insert(self.clock, entry.range.offset);
            }
            finds.push(match &entry.state {
                State::Flying(landing) => Found::Flying { landing: Arc::clone(landing), part, range: common },
                State::Held(Content::Memory(data)) => Found::Here(data.slice(part.offset, part.len)),
                State::Held(Content::File(digests)) => {
                    Found::Stored { id: entry.id, whole: entry.range, part: common, digests: Arc::clone(digests) }
                }
            });
        }
        if at < range.end() {
            finds.push(Found::Absent(ByteRange::between(at, range.end())));
        }
        finds
    }

    /// Parts of the range that are neither here nor on their way.
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
            if entry.range.offset > at || !matches!(entry.state, State::Held(_)) {
                return false;
            }
            at = at.max(entry.range.end());
        }
        at >= range.end()
    }

    fn first_touching(&self, range: ByteRange) -> u64 {
        match self.entries.range(..=range.offset).next_back() {
            Some((offset, entry)) if entry.range.end() > range.offset => *offset,
            _ => range.offset,
        }
    }

    /// A fetch sets out for a range that is [`absent`](Self::absent).
    pub(super) fn take_off(&mut self, id: FetchId, range: ByteRange, wished: Option<Urgency>) -> Arc<Landing> {
        let landing = Arc::<Landing>::default();
        let state = State::Flying(Arc::clone(&landing));
        let entry = Entry { id, range, wished, state, touched: Touched::default(), weight: 0, used_at: 0 };
        self.entries.insert(range.offset, entry);
        landing
    }

    /// It is over; with no data, it is forgotten.
    pub(super) fn land(&mut self, id: FetchId, range: ByteRange, data: Option<Data>, stats: &mut CacheStats) {
        let Some(entry) = self.entries.get_mut(&range.offset).filter(|entry| entry.id == id) else { return };
        let Some(data) = data else {
            self.entries.remove(&range.offset);
            return;
        };
        match entry.wished {
            None => stats.demanded_bytes += range.len,
            Some(urgency) => {
                let hinted = &mut stats.hinted[urgency as usize];
                hinted.bytes += range.len;
                hinted.used_bytes += entry.touched.bytes(range.len);
            }
        }
        entry.weight = OVERHEAD_BYTES + memory_bytes(&data);
        self.weight += entry.weight;
        entry.state = State::Held(Content::Memory(data));
        self.clock += 1;
        entry.used_at = self.clock;
        self.by_use.insert(self.clock, range.offset);
        self.shrink(stats);
    }

    /// What landed is in the file now.
    pub(super) fn stored(&mut self, id: FetchId, range: ByteRange, digests: Arc<[u64]>) {
        if let Some(entry) = self.entries.get_mut(&range.offset).filter(|entry| entry.id == id) {
            entry.state = State::Held(Content::File(digests));
        }
    }

    /// Forgets what a fetch brought; whether it was still there.
    pub(super) fn forget(&mut self, id: FetchId, range: ByteRange) -> bool {
        let known = self.entries.get(&range.offset).is_some_and(|entry| entry.id == id);
        if known {
            self.remove(range.offset);
        }
        known
    }

    /// What was dropped since this was last asked.
    pub(super) fn take_dropped(&mut self) -> Vec<ByteRange> {
        std::mem::take(&mut self.dropped)
    }

    fn shrink(&mut self, stats: &mut CacheStats) {
        while self.weight > self.budget {
            let Some(oldest) = self.by_use.values().next().copied() else { return };
            stats.evicted_bytes += self.remove(oldest);
        }
    }

    /// Bytes removed.
    fn remove(&mut self, offset: u64) -> u64 {
        let Some(entry) = self.entries.remove(&offset) else { return 0 };
        self.by_use.remove(&entry.used_at);
        self.weight -= entry.weight;
        self.dropped.push(entry.range);
        entry.range.len
    }
}

impl Entry {
    fn touch(&mut self, part: ByteRange, stats: &mut CacheStats) {
        let Some(urgency) = self.wished else { return };
        let before = self.touched.bytes(self.range.len);
        self.touched.mark(ByteRange::new(part.offset - self.range.offset, part.len), self.range.len);
        // What is on its way counts when it is here.
        if let State::Held(_) = self.state {
            stats.hinted[urgency as usize].used_bytes += self.touched.bytes(self.range.len) - before;
        }
    }
}

/// What data takes in memory: zeros take nothing.
fn memory_bytes(data: &Data) -> u64 {
    data.parts().iter().filter(|part| matches!(part, crate::data::Part::Bytes(_))).map(|part| part.len()).sum()
}
