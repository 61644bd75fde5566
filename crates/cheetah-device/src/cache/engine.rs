//! The whole layer as a state machine: events in, what to do out. It does no I/O and reads no clock.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::hint_window::HintWindow;
use super::shelf::{FetchId, Finds, Found, Shelf};
use super::stats::CacheStats;
use super::wishes::Wishes;
use super::{DEMAND_BYTES_MAX, GRAIN, Urgency};
use crate::link_estimate::TrackedRequest;
use crate::prefetch::chunk::Landing;
use crate::{ByteRange, Data};

/// Fetches that one event may start on account of hints.
const FETCHES_MAX: usize = 64;

/// A range to be read from the device, the outcome to be handed to [`Engine::fetched`].
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) id: FetchId,
    pub(super) range: ByteRange,
    wished: Option<Urgency>,
    landing: Arc<Landing>,
    sent: TrackedRequest,
}

pub(super) type Fetches = SmallVec<[Fetch; 2]>;

/// How a read is to be answered.
#[derive(Debug)]
pub(super) enum Plan {
    /// With this.
    Hit(Data),
    /// Piece by piece.
    Gather(Pieces),
}

pub(super) type Pieces = SmallVec<[Piece; 2]>;

/// A piece of a read.
#[derive(Debug)]
pub(super) enum Piece {
    /// What is known of it; never [`Found::Absent`].
    Found(Found),
    /// To be fetched by the reader; `part` of what comes, counted from its start, is its own.
    Missing { fetch: Fetch, part: ByteRange },
}

/// See the module's essay.
pub(super) struct Engine {
    size: u64,
    shelf: Shelf,
    wishes: Wishes,
    window: HintWindow,
    next_fetch: u64,
    /// Bytes on their way on account of hints.
    hinted: u64,
    stats: CacheStats,
}

impl Engine {
    /// For a device of `size` bytes; keeps up to `budget`.
    pub(super) fn new(size: u64, budget: u64) -> Self {
        Self {
            size,
            shelf: Shelf::new(budget),
            wishes: Wishes::default(),
            window: HintWindow::default(),
            next_fetch: 1,
            hinted: 0,
            stats: CacheStats::default(),
        }
    }

    /// A read of a range that is not empty and lies within the device; one that `counts` makes what it touches used.
    pub(super) fn read(&mut self, range: ByteRange, counts: bool, now: Duration) -> Plan {
        let finds = self.shelf.look(range, counts, &mut self.stats);
        let absent = finds.iter().any(|found| matches!(found, Found::Absent(_)));
        let waits = finds.iter().any(|found| matches!(found, Found::Flying { .. }));
        if counts {
            let count = match (absent, waits) {
                (true, _) => &mut self.stats.misses,
                (false, true) => &mut self.stats.waits,
                (false, false) => &mut self.stats.hits,
            };
            *count += 1;
        }
        if let Some(data) = at_hand(&finds) {
            return Plan::Hit(data);
        }
        let mut pieces = Pieces::new();
        for found in finds {
            match found {
                Found::Absent(wanted) => self.demand(wanted, now, &mut pieces),
                known => pieces.push(Piece::Found(known)),
            }
        }
        Plan::Gather(pieces)
    }

    /// Fetches for a part of a read that is absent. Whole grains, so that what is kept has few seams; those around an
    /// absent byte are absent too, since nothing else is ever fetched.
    fn demand(&mut self, wanted: ByteRange, now: Duration, pieces: &mut Pieces) {
        for range in self.grains(wanted).split_at_multiples(DEMAND_BYTES_MAX) {
            let Some(mine) = range.intersection(wanted) else { continue };
            let fetch = self.take_off(range, None, now);
            let part = ByteRange::new(mine.offset - range.offset, mine.len);
            pieces.push(Piece::Missing { fetch, part });
        }
    }

    fn take_off(&mut self, range: ByteRange, wished: Option<Urgency>, now: Duration) -> Fetch {
        let id = FetchId(self.next_fetch);
        self.next_fetch += 1;
        self.hinted += if wished.is_some() { range.len } else { 0 };
        let landing = self.shelf.take_off(id, range, wished);
        Fetch { id, range, wished, landing, sent: self.window.sent(range.len, now) }
    }

    /// A fetch is over; with no data it failed, or was given up.
    pub(super) fn fetched(&mut self, fetch: &Fetch, data: Option<Data>, now: Duration) {
        // A device that sends less than it was asked for is broken; nothing of it is used.
        let data = data.filter(|data| data.len() == fetch.range.len);
        self.window.finished(fetch.sent, data.is_some(), now);
        self.hinted -= if fetch.wished.is_some() { fetch.range.len } else { 0 };
        self.stats.failures += u64::from(data.is_none());
        self.shelf.land(fetch.id, fetch.range, data.clone(), &mut self.stats);
        fetch.landing.land(data);
    }

    /// What a fetch brought is in the file, with these digests.
    pub(super) fn stored(&mut self, id: FetchId, range: ByteRange, digests: Arc<[u64]>) {
        self.shelf.stored(id, range, digests);
    }

    /// What a fetch brought cannot be kept.
    pub(super) fn not_stored(&mut self, id: FetchId, range: ByteRange) {
        self.shelf.forget(id, range);
    }

    /// What a fetch brought came back different from where it was kept; whether it should not have.
    pub(super) fn spoilt(&mut self, id: FetchId, range: ByteRange) -> bool {
        let known = self.shelf.forget(id, range);
        if known {
            self.stats.spoilt_bytes += range.len;
        }
        known
    }

    /// Somebody wants a range near; `told` when it is here, or on its way.
    pub(super) fn wish(&mut self, range: ByteRange, urgency: Urgency, told: Option<oneshot::Sender<()>>) {
        self.wishes.push(self.grains(range), urgency, told);
    }

    /// Starts what wishes there is room for on the link.
    pub(super) fn pump(&mut self, now: Duration, fetches: &mut Fetches) {
        while fetches.len() < FETCHES_MAX {
            let Some((range, urgency)) = self.wishes.peek(self.window.fetch_bytes()) else { return };
            let absent = self.shelf.absent(range);
            let bytes: u64 = absent.iter().map(|part| part.len).sum();
            let in_flight = self.window.in_flight();
            // One at least may go along with what is read, or who never stops reading would stop them altogether.
            if self.hinted > 0 && bytes > 0 && in_flight.saturating_add(bytes) > self.window.bytes(now) {
                return;
            }
            for part in absent {
                tracing::trace!(range = %part, ?urgency, in_flight, "fetched ahead");
                fetches.push(self.take_off(part, Some(urgency), now));
            }
            self.wishes.pop(range, urgency);
        }
    }

    /// Parts of the range that are neither here nor on their way.
    pub(super) fn absent(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        self.shelf.absent(range)
    }

    /// Whether all of the range is kept.
    pub(super) fn holds(&self, range: ByteRange) -> bool {
        self.shelf.holds(range)
    }

    pub(super) fn take_dropped(&mut self) -> Vec<ByteRange> {
        self.shelf.take_dropped()
    }

    pub(super) fn stats(&self) -> CacheStats {
        let link = self.window.model().unwrap_or_default();
        CacheStats {
            held_bytes: self.shelf.weight(),
            in_flight_bytes: self.window.in_flight(),
            bandwidth: link.bandwidth,
            round_trip_us: u64::try_from(link.round_trip.as_micros()).unwrap_or(u64::MAX),
            ..self.stats
        }
    }

    /// The grains a range touches, within the device.
    fn grains(&self, range: ByteRange) -> ByteRange {
        let start = range.offset - range.offset % GRAIN;
        let end = range.end().checked_next_multiple_of(GRAIN).unwrap_or(self.size).min(self.size);
        ByteRange::between(start, end)
    }
}

/// All of it, if it is in memory.
fn at_hand(finds: &Finds) -> Option<Data> {
    if let [Found::Here(data)] = finds.as_slice() {
        return Some(data.clone());
    }
    let mut all = Data::new();
    for found in finds {
        let Found::Here(data) = found else { return None };
        all.append(data.clone());
    }
    Some(all)
}
