//! A cache of unpacked chunks, which also keeps two readers from unpacking the same chunk at once.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cheetah_device::data::Part;
use cheetah_device::{Data, Error, Result};
use parking_lot::Mutex;
use tokio::sync::SetOnce;

/// The minimum cost charged for a chunk, in bytes: what it takes besides its content.
const EMPTY_COST: u64 = 512;

/// A chunk's slot, filled once. `None` if the claimant could not unpack it without blocking and released it; then it
/// must be claimed again.
pub(crate) type Slot = Arc<SetOnce<Option<Result<Data>>>>;

/// How long chunks are kept. Each kind has a budget of its own, so that a copy of the whole image does not evict what small reads
/// come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Those of large reads, which seldom come back.
    Briefly,
    /// Those of small reads, and those around them.
    Long,
}

/// Chunks by number: those in flight, and the recently used ones within the budgets.
pub(crate) struct Cache {
    state: Mutex<State>,
    /// By [`Keep`], in bytes.
    budgets: [u64; 2],
}

#[derive(Default)]
struct State {
    chunks: HashMap<u64, CachedChunk>,
    /// By [`Keep`].
    finished: [Finished; 2],
}

#[derive(Default)]
struct Finished {
    /// The chunks in eviction order.
    order: VecDeque<u64>,
    cost: u64,
}

struct CachedChunk {
    slot: Slot,
    /// 0 while in flight.
    cost: u64,
    /// Whether it was used since the last eviction scan.
    used: bool,
}

/// Chunks in order, and the claim on those that are neither cached nor in flight.
pub(crate) struct Claim {
    pub(crate) slots: Vec<Slot>,
    pub(crate) work: Work,
}

/// Claimed chunks. Dropping it releases unfinished ones and wakes their waiters.
pub(crate) struct Work {
    cache: Arc<Cache>,
    keep: Keep,
    /// Whether dropping it fails the waiters, since a retry would fail as well.
    committed: bool,
    /// In order.
    todo: VecDeque<(u64, Slot)>,
}

impl Cache {
    /// Returns a cache with these budgets, in bytes. Without a budget for `long`, all chunks are kept briefly.
    pub(crate) fn new(briefly: u64, long: u64) -> Self {
        Self { state: Mutex::default(), budgets: [briefly, long] }
    }

    /// Claims `chunks`, to be kept for so long; `None`, without a claim, if more than `most` of them must be unpacked.
    pub(crate) fn claim(self: &Arc<Self>, chunks: Range<u64>, most: usize, keep: Keep) -> Option<Claim> {
        let keep = if self.budgets[Keep::Long as usize] == 0 { Keep::Briefly } else { keep };
        let mut state = self.state.lock();
        if chunks.clone().filter(|chunk| !state.chunks.contains_key(chunk)).take(most.saturating_add(1)).count() > most
        {
            return None;
        }
        let mut todo = VecDeque::new();
        let slots = chunks.map(|chunk| {
            let held = state.chunks.entry(chunk).or_insert_with(|| {
                let slot = Slot::default();
                todo.push_back((chunk, slot.clone()));
                CachedChunk { slot, cost: 0, used: false }
            });
            held.used |= held.cost > 0;
            held.slot.clone()
        });
        let slots = slots.collect();
        drop(state);
        Some(Claim { slots, work: Work { cache: self.clone(), keep, committed: false, todo } })
    }

    fn keep(&self, chunk: u64, data: &Data, keep: Keep) {
        let bytes = data.parts().iter().filter(|part| matches!(part, Part::Bytes(_))).map(Part::len).sum::<u64>();
        let cost = bytes.max(EMPTY_COST);
        let mut dropped = Vec::new();
        let State { chunks, finished } = &mut *self.state.lock();
        let (finished, budget) = (&mut finished[keep as usize], self.budgets[keep as usize]);
        if let Some(held) = chunks.get_mut(&chunk) {
            held.cost = cost;
            finished.cost += cost;
            finished.order.push_back(chunk);
        }
        while finished.cost > budget
            && let Some(oldest) = finished.order.pop_front()
        {
            match chunks.get_mut(&oldest) {
                Some(held) if held.used => {
                    held.used = false;
                    finished.order.push_back(oldest);
                }
                _ => {
                    let held = chunks.remove(&oldest);
                    finished.cost -= held.as_ref().map_or(0, |held| held.cost);
                    dropped.push(held);
                }
            }
        }
    }

    fn forget(&self, chunk: u64) {
        self.state.lock().chunks.remove(&chunk);
    }
}

impl Work {
    /// Whether all claimed chunks are finished.
    pub(crate) fn is_done(&self) -> bool {
        self.todo.is_empty()
    }

    /// The number of unfinished chunks.
    pub(crate) fn len(&self) -> usize {
        self.todo.len()
    }

    /// Splits off the chunks after the first `len`.
    pub(crate) fn split_off(&mut self, len: usize) -> Self {
        let todo = self.todo.split_off(len.min(self.todo.len()));
        Self { cache: self.cache.clone(), keep: self.keep, committed: self.committed, todo }
    }

    /// Makes dropping it a failure of the unfinished chunks.
    pub(crate) fn commit(mut self) -> Self {
        self.committed = true;
        self
    }

    /// The runs of adjacent unfinished chunks.
    pub(crate) fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (chunk, _) in &self.todo {
            match runs.last_mut() {
                Some(last) if last.end == *chunk => last.end += 1,
                _ => runs.push(*chunk..chunk + 1),
            }
        }
        runs
    }

    /// Finishes a chunk. A failure reaches the waiters and is not cached, unless the chunk is corrupt.
    pub(crate) fn put(&mut self, chunk: u64, result: Result<Data>) {
        let Some(at) = self.todo.iter().position(|(other, _)| *other == chunk) else { return };
        let Some((_, slot)) = self.todo.remove(at) else { return };
        match &result {
            Ok(data) => self.cache.keep(chunk, data, self.keep),
            // It is so each time. Readers that look for its ends ask for it thousands of times.
            Err(Error::Corrupt { .. }) => self.cache.keep(chunk, &Data::new(), self.keep),
            Err(_) => self.cache.forget(chunk),
        }
        // Only the claimant fills it.
        let _ = slot.set(Some(result));
    }

    /// Fails all unfinished chunks with `error`.
    pub(crate) fn fail(&mut self, error: &Error) {
        while let Some((chunk, _)) = self.todo.front() {
            self.put(*chunk, Err(error.clone()));
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let left = self.committed.then(|| Err(Error::Invalid("reading the image was interrupted".into())));
        for (chunk, slot) in self.todo.drain(..) {
            self.cache.forget(chunk);
            let _ = slot.set(left.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(cache: &Arc<Cache>, chunks: Range<u64>) -> Claim {
        cache.claim(chunks, usize::MAX, Keep::Briefly).unwrap()
    }

    fn bytes(len: usize) -> Result<Data> {
        Ok(vec![1; len].into())
    }

    fn len(slot: &Slot) -> Option<Option<Result<u64>>> {
        slot.get().map(|result| result.as_ref().map(|result| result.as_ref().map(Data::len).map_err(Clone::clone)))
    }

    #[test]
    fn concurrent_readers_unpack_a_chunk_once() {
        let cache = Arc::new(Cache::new(1 << 20, 0));
        let mut first = claim(&cache, 0..4);
        let second = claim(&cache, 2..6);
        assert_eq!([first.work.runs(), second.work.runs()].concat(), [0..4, 4..6]);
        first.work.put(2, bytes(8));
        assert_eq!(first.work.runs(), [0..2, 3..4]);
        assert_eq!(len(&second.slots[0]), Some(Some(Ok(8))));
        assert!(second.slots[1].get().is_none());
    }

    #[test]
    fn abandoned_work_can_be_claimed_again() {
        let cache = Arc::new(Cache::new(1 << 20, 0));
        let first = claim(&cache, 0..2);
        let second = claim(&cache, 0..2);
        drop(first.work);
        assert_eq!(len(&second.slots[0]), Some(None));
        assert_eq!(claim(&cache, 0..2).work.len(), 2);
        let mut failing = claim(&cache, 0..1);
        failing.work.fail(&Error::ReadOnly);
        assert_eq!(len(&failing.slots[0]), Some(Some(Err(Error::ReadOnly))));
        assert!(!claim(&cache, 0..1).work.is_done());
        let Claim { slots, work } = claim(&cache, 0..1);
        drop(work.commit());
        assert!(matches!(len(&slots[0]), Some(Some(Err(Error::Invalid(_))))));
    }

    #[test]
    fn the_least_recently_used_chunk_is_evicted_first() {
        let cache = Arc::new(Cache::new(3000, 0));
        for chunk in 0..3 {
            claim(&cache, chunk..chunk + 1).work.put(chunk, bytes(1000));
        }
        assert!(cache.claim(0..1, 0, Keep::Briefly).is_some());
        claim(&cache, 3..4).work.put(3, bytes(1000));
        let held: Vec<_> = (0..4).map(|chunk| cache.claim(chunk..chunk + 1, 0, Keep::Briefly).is_some()).collect();
        assert_eq!(held, [true, false, true, true]);
        claim(&cache, 9..10).work.put(9, bytes(5000));
        assert!(cache.claim(9..10, 0, Keep::Briefly).is_none(), "larger than the budget");
        assert_eq!(cache.state.lock().finished[0].cost, 3000);
        let many = 10_000..10_000 + 12;
        let mut work = claim(&cache, many.clone()).work;
        many.clone().for_each(|chunk| work.put(chunk, Ok(Data::zeros(1 << 20))));
        assert_eq!(many.filter(|chunk| cache.claim(*chunk..chunk + 1, 0, Keep::Briefly).is_some()).count(), 5);
    }

    #[test]
    fn chunks_of_large_reads_do_not_evict_those_of_small_ones() {
        let cache = Arc::new(Cache::new(3000, 3000));
        for chunk in 0..3 {
            let small = cache.claim(chunk..chunk + 1, 1, Keep::Long).unwrap();
            { small }.work.put(chunk, bytes(1000));
        }
        (10..100).for_each(|chunk| claim(&cache, chunk..chunk + 1).work.put(chunk, bytes(1000)));
        let is_held = |chunk: &u64| cache.claim(*chunk..chunk + 1, 0, Keep::Briefly).is_some();
        assert_eq!((0..100).filter(is_held).collect::<Vec<_>>(), [0, 1, 2, 97, 98, 99]);
    }
}
