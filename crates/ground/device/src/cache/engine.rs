//! The cache as a state machine: events in, fetches out. It does no I/O and reads no clock.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::entries::{CacheEntries, CacheFetchId, CachedPart, CachedParts, Origin};
use super::hint_queue::HintQueue;
use super::hint_window::HintWindow;
use super::stats::CacheStats;
use super::{DEMAND_BYTES_MAX, GRAIN, Urgency};
use crate::fetch::PendingFetch;
use crate::link_estimate::TrackedRequest;
use crate::{ByteRange, Data};

/// The maximum number of fetches for hints that one event starts.
const FETCHES_MAX: usize = 64;

/// A range to be read from the device. Pass the outcome to [`CacheEngine::fetched`].
#[derive(Debug)]
pub(super) struct CacheFetch {
    pub(super) id: CacheFetchId,
    pub(super) range: ByteRange,
    origin: Origin,
    pending: Arc<PendingFetch>,
    sent: TrackedRequest,
}

pub(super) type CacheFetches = SmallVec<[CacheFetch; 2]>;

/// How to answer a read.
#[derive(Debug)]
pub(super) enum CachePlan {
    /// With this data.
    Hit(Data),
    /// From several parts, in order.
    Gather(CacheReadSteps),
}

pub(super) type CacheReadSteps = SmallVec<[CacheReadStep; 2]>;

/// How to get a part of a read.
#[derive(Debug)]
pub(super) enum CacheReadStep {
    /// From the entry; never [`CachedPart::Absent`].
    Known(CachedPart),
    /// By a fetch the reader makes: `part` of it, counted from its start.
    Fetch { fetch: CacheFetch, part: ByteRange },
}

/// The state machine; see the [module](super).
pub(super) struct CacheEngine {
    size: u64,
    entries: CacheEntries,
    hints: HintQueue,
    window: HintWindow,
    next_fetch: u64,
    /// Bytes in flight for hints.
    hinted: u64,
    stats: CacheStats,
}

impl CacheEngine {
    /// An empty cache of `budget` bytes for a device of `size` bytes.
    pub(super) fn new(size: u64, budget: u64) -> Self {
        Self {
            size,
            entries: CacheEntries::new(budget),
            hints: HintQueue::default(),
            window: HintWindow::default(),
            next_fetch: 1,
            hinted: 0,
            stats: CacheStats::default(),
        }
    }

    /// Plans a read of a range that is not empty and lies within the device. With `counts`, the entries it touches
    /// count as used.
    pub(super) fn read(&mut self, range: ByteRange, counts: bool, now: Duration) -> CachePlan {
        let parts = self.entries.look_up(range, counts, &mut self.stats);
        let absent = parts.iter().any(|part| matches!(part, CachedPart::Absent(_)));
        let waits = parts.iter().any(|part| matches!(part, CachedPart::InFlight { .. }));
        if counts {
            let count = match (absent, waits) {
                (true, _) => &mut self.stats.misses,
                (false, true) => &mut self.stats.waits,
                (false, false) => &mut self.stats.hits,
            };
            *count += 1;
        }
        if let Some(data) = in_memory(&parts) {
            return CachePlan::Hit(data);
        }
        let mut steps = CacheReadSteps::new();
        for part in parts {
            match part {
                CachedPart::Absent(range) => self.demand(range, now, &mut steps),
                known => steps.push(CacheReadStep::Known(known)),
            }
        }
        CachePlan::Gather(steps)
    }

    /// Fetches an absent part of a read, in whole grains, so that few entries result. The rest of a grain around an
    /// absent byte is absent too, since only whole grains are ever fetched.
    fn demand(&mut self, wanted: ByteRange, now: Duration, steps: &mut CacheReadSteps) {
        for range in self.grains(wanted).split_at_multiples(DEMAND_BYTES_MAX) {
            let Some(common) = range.intersection(wanted) else { continue };
            let fetch = self.start_fetch(range, Origin::Demand, now);
            let part = ByteRange::new(common.offset - range.offset, common.len);
            steps.push(CacheReadStep::Fetch { fetch, part });
        }
    }

    fn start_fetch(&mut self, range: ByteRange, origin: Origin, now: Duration) -> CacheFetch {
        let id = CacheFetchId(self.next_fetch);
        self.next_fetch += 1;
        self.hinted += if origin == Origin::Demand { 0 } else { range.len };
        let pending = self.entries.start_fetch(id, range, origin);
        CacheFetch { id, range, origin, pending, sent: self.window.sent(range.len, now) }
    }

    /// Notes that a fetch is over; without data it failed, or was cancelled.
    pub(super) fn fetched(&mut self, fetch: &CacheFetch, data: Option<Data>, now: Duration) {
        // A device that returns fewer bytes than requested is broken, so none of them are used.
        let data = data.filter(|data| data.len() == fetch.range.len);
        self.window.finished(fetch.sent, data.is_some(), now);
        self.hinted -= if fetch.origin == Origin::Demand { 0 } else { fetch.range.len };
        self.stats.failures += u64::from(data.is_none());
        self.entries.finish_fetch(fetch.id, fetch.range, data.clone(), &mut self.stats);
        fetch.pending.complete(data);
    }

    /// Notes that the data of a fetch is in the file, with these digests.
    pub(super) fn stored(&mut self, id: CacheFetchId, range: ByteRange, digests: Arc<[u64]>) {
        self.entries.stored(id, range, digests);
    }

    /// Notes that the data of a fetch cannot be stored.
    pub(super) fn not_stored(&mut self, id: CacheFetchId, range: ByteRange) {
        self.entries.forget(id, range);
    }

    /// Notes that data read back from the file differs from the data of a fetch. Returns whether that is damage: the
    /// entry was still there.
    pub(super) fn corrupted(&mut self, id: CacheFetchId, range: ByteRange) -> bool {
        let known = self.entries.forget(id, range);
        if known {
            self.stats.spoilt_bytes += range.len;
        }
        known
    }

    /// Queues a hint; `done` is notified when the range is held or in flight.
    pub(super) fn hint(&mut self, range: ByteRange, urgency: Urgency, done: Option<oneshot::Sender<()>>) {
        self.hints.push(self.grains(range), urgency, done);
    }

    /// Starts fetches for hints, as far as the link has room.
    pub(super) fn pump(&mut self, now: Duration, fetches: &mut CacheFetches) {
        while fetches.len() < FETCHES_MAX {
            let Some((range, urgency)) = self.hints.peek(self.window.fetch_bytes()) else { return };
            let absent = self.entries.absent(range);
            let bytes: u64 = absent.iter().map(|part| part.len).sum();
            let in_flight = self.window.in_flight();
            // One hint may always be in flight beside the reads. Otherwise a reader that never pauses would stop all
            // hints.
            if self.hinted > 0 && bytes > 0 && in_flight.saturating_add(bytes) > self.window.bytes(now) {
                return;
            }
            for part in absent {
                tracing::trace!(range = %part, ?urgency, in_flight, "fetched ahead");
                fetches.push(self.start_fetch(part, Origin::Hint(urgency), now));
            }
            self.hints.pop(range, urgency);
        }
    }

    /// Returns the parts of the range that are neither held nor in flight.
    pub(super) fn absent(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        self.entries.absent(range)
    }

    /// Whether all of the range is held.
    pub(super) fn holds(&self, range: ByteRange) -> bool {
        self.entries.holds(range)
    }

    /// Returns the ranges removed since the last call.
    pub(super) fn take_dropped(&mut self) -> Vec<ByteRange> {
        self.entries.take_dropped()
    }

    pub(super) fn stats(&self) -> CacheStats {
        let link = self.window.model().unwrap_or_default();
        CacheStats {
            held_bytes: self.entries.weight(),
            in_flight_bytes: self.window.in_flight(),
            bandwidth: link.bandwidth,
            round_trip_us: u64::try_from(link.round_trip.as_micros()).unwrap_or(u64::MAX),
            ..self.stats
        }
    }

    /// Widens a range to whole grains, within the device.
    fn grains(&self, range: ByteRange) -> ByteRange {
        let start = range.offset - range.offset % GRAIN;
        let end = range.end().checked_next_multiple_of(GRAIN).unwrap_or(self.size).min(self.size);
        ByteRange::between(start, end)
    }
}

/// Joins the parts if all of them are in memory.
fn in_memory(parts: &CachedParts) -> Option<Data> {
    if let [CachedPart::InMemory(data)] = parts.as_slice() {
        return Some(data.clone());
    }
    let mut whole = Data::new();
    for part in parts {
        let CachedPart::InMemory(data) = part else { return None };
        whole.append(data.clone());
    }
    Some(whole)
}
