//! The prefetcher as a state machine: events in, fetches out. It does no I/O and reads no clock.

use std::sync::Arc;
use std::time::Duration;

use super::chunk::PrefetchId;
use super::chunk_cache::{ChunkCache, PrefetchedPart, PrefetchedParts};
use super::cursor::CursorId;
use super::cursors::Cursors;
use super::hints::PrefetchHints;
use super::link_window::LinkWindow;
use super::stats::PrefetchStats;
use super::writes::{ActiveWrites, WriteId};
use super::{MIB, PrefetchConfig};
use crate::fetch::PendingFetch;
use crate::link_estimate::TrackedRequest;
use crate::{ByteRange, Data};

pub(super) type PrefetchRequests = Vec<PrefetchRequest>;

/// The maximum number of fetches that one event starts.
const FETCHES_MAX: usize = 64;
/// The distance a stream that has to earn its window must have advanced before it gets one, in bytes.
const EARNED_MIN: u64 = 512 * 1024;
/// The longest read taken into account when the window is made large enough for two.
const READ_MAX: u64 = 2 * MIB;

/// A range to be read from the device. Pass the outcome to [`PrefetchEngine::fetched`].
#[derive(Debug)]
pub(super) struct PrefetchRequest {
    pub(super) range: ByteRange,
    id: PrefetchId,
    owner: CursorId,
    pending: Arc<PendingFetch>,
    sent: TrackedRequest,
}

/// The outcome of a fetch.
#[derive(Debug)]
pub(super) enum FetchOutcome {
    Arrived(Data),
    /// The device had the data at hand (in a cache below it, say), so the answer does not measure the link.
    AnsweredAtOnce(Data),
    Failed,
    /// The fetch was never sent, or its answer was not awaited.
    Cancelled,
}

/// How to answer a read.
#[derive(Debug)]
pub(super) enum PrefetchPlan {
    /// By the device.
    Pass,
    /// With this data.
    Hit(Data),
    /// From several parts, in order. Pass the request, which accounts for the absent ones, to
    /// [`PrefetchEngine::demanded`].
    Gather(PrefetchedParts, TrackedRequest),
}

/// The state machine; see the [module](super).
pub(super) struct PrefetchEngine {
    config: PrefetchConfig,
    cursors: Cursors,
    cache: ChunkCache,
    link: LinkWindow,
    writes: ActiveWrites,
    hints: PrefetchHints,
    next_fetch: u64,
    stats: PrefetchStats,
}

impl PrefetchEngine {
    /// An idle prefetcher for a device of `size` bytes.
    pub(super) fn new(config: PrefetchConfig, size: u64) -> Self {
        Self {
            config,
            cursors: Cursors::new(size, config.budget_bytes),
            cache: ChunkCache::new(config.budget_bytes),
            link: LinkWindow::new(config.window_bytes_first),
            writes: ActiveWrites::default(),
            hints: PrefetchHints::default(),
            next_fetch: 1,
            stats: PrefetchStats::default(),
        }
    }

    /// Plans a read of a range that is not empty and lies within the device. Start the `fetches` after its absent parts
    /// have been requested.
    pub(super) fn read(&mut self, range: ByteRange, now: Duration, fetches: &mut PrefetchRequests) -> PrefetchPlan {
        let (link, dear) = (&self.link, self.config.earned);
        let through = |step: u64| !dear && link.gap_is_cheap(step, range.len);
        let cursor = self.cursors.place(range, now, |found| found.step.is_some_and(through));
        let parts = self.cache.read(range, &mut self.stats);
        let plan = match cursor {
            None if parts.is_empty() && !self.link.wants_sample(now) => {
                self.stats.misses += 1;
                return PrefetchPlan::Pass;
            }
            _ => self.plan(range, parts, now),
        };
        if let Some(cursor) = cursor {
            let missing = match &plan {
                PrefetchPlan::Gather(_, sent) => {
                    self.starved(cursor, range, now);
                    sent.bytes()
                }
                _ => 0,
            };
            self.fetch_for(cursor, missing, now, fetches);
        }
        plan
    }

    /// Returns prefetched data predicted to follow `range`, read on behalf of its stream. Empty for a stream that reads
    /// forward without gaps: a kernel reads ahead there by itself.
    pub(super) fn take_prefetched(
        &mut self,
        range: ByteRange,
        now: Duration,
        fetches: &mut PrefetchRequests,
    ) -> Vec<(u64, Data)> {
        let Some(predicted) = self.cursors.at(range).map(|cursor| cursor.predicted()) else { return Vec::new() };
        let mut prefetched = Vec::new();
        for range in predicted {
            if !self.cache.holds(range) {
                break;
            }
            if let PrefetchPlan::Hit(data) = self.read(range, now, fetches) {
                prefetched.push((range.offset, data));
            }
        }
        prefetched
    }

    fn plan(&mut self, range: ByteRange, mut parts: PrefetchedParts, now: Duration) -> PrefetchPlan {
        if parts.is_empty() {
            parts.push(PrefetchedPart::Absent(range));
        }
        let (mut missing, mut waits) = (0, false);
        for part in &parts {
            match part {
                PrefetchedPart::Absent(range) => missing += range.len,
                PrefetchedPart::InFlight { .. } => waits = true,
                PrefetchedPart::Held(_) => {}
            }
        }
        self.stats.waits += u64::from(waits);
        self.stats.misses += u64::from(missing > 0);
        if missing > 0 || waits {
            return PrefetchPlan::Gather(parts, self.link.sent(missing, now));
        }
        self.stats.hits += 1;
        let mut data = Data::new();
        for part in parts {
            if let PrefetchedPart::Held(part) = part {
                data.append(part);
            }
        }
        PrefetchPlan::Hit(data)
    }

    /// Notes that the absent parts of a read have arrived from the device (`crossed`), were at hand, or failed.
    pub(super) fn demanded(&mut self, sent: TrackedRequest, crossed: bool, now: Duration) {
        self.link.finished(sent, crossed, now);
    }

    /// Notes that a fetch is over.
    pub(super) fn fetched(&mut self, fetch: &PrefetchRequest, outcome: FetchOutcome, now: Duration) {
        let crossed = matches!(outcome, FetchOutcome::Arrived(_));
        let data = match outcome {
            // A device that returns fewer bytes than requested is broken, so none of them are used.
            FetchOutcome::Arrived(data) | FetchOutcome::AnsweredAtOnce(data) if data.len() == fetch.range.len => {
                Some(data)
            }
            FetchOutcome::Arrived(_) | FetchOutcome::AnsweredAtOnce(_) | FetchOutcome::Failed => {
                self.stats.failures += 1;
                if let Some(cursor) = self.cursors.get_mut(fetch.owner) {
                    cursor.failed(fetch.range);
                }
                None
            }
            FetchOutcome::Cancelled => None,
        };
        self.link.finished(fetch.sent, crossed && data.is_some(), now);
        self.cache.finish_fetch(fetch.id, fetch.range, data.clone(), &mut self.stats);
        fetch.pending.complete(data);
    }

    /// Notes that a write of any kind begins.
    pub(super) fn write_begins(&mut self, range: ByteRange) -> WriteId {
        self.writes.begin(range)
    }

    /// Notes that it is over; `done` unless it failed or was cancelled. Reads that start from now on see it.
    pub(super) fn write_ends(&mut self, id: WriteId, done: bool) {
        if let Some(range) = self.writes.end(id, done) {
            self.cache.invalidate(range, &mut self.stats);
        }
    }

    /// Takes a hint that the range will be read soon.
    pub(super) fn hint(&mut self, range: ByteRange, now: Duration, fetches: &mut PrefetchRequests) {
        self.hints.push(range);
        self.fetch_more(now, fetches);
    }

    pub(super) fn stats(&self) -> PrefetchStats {
        let link = self.link.model().unwrap_or_default();
        PrefetchStats {
            held_bytes: self.cache.held(),
            in_flight_bytes: self.cache.in_flight(),
            bandwidth: link.bandwidth,
            round_trip_us: u64::try_from(link.round_trip.as_micros()).unwrap_or(u64::MAX),
            streams: self.cursors.stats(),
            ..self.stats.clone()
        }
    }

    /// Returns the window of the link for a stream whose reads are up to `read_max` long. With less than two long reads
    /// in flight, a reader would wait for the second half of each.
    fn room(&self, read_max: u64) -> u64 {
        self.link.bytes().max(2 * read_max.min(READ_MAX))
    }

    /// Returns the largest window a stream may have now.
    fn window_limit(&self, room: u64, now: Duration) -> u64 {
        let share = self.cache.budget_unread() / self.cursors.active(now).max(1);
        room.min(share).min(self.config.window_bytes_max)
    }

    /// Returns the largest window a stream has earned.
    fn earned(&mut self, cursor: CursorId) -> u64 {
        match self.cursors.get_mut(cursor) {
            Some(cursor) if self.config.earned && cursor.has_gaps() => 0,
            Some(cursor) if self.config.earned => {
                Some(cursor.advanced_bytes()).filter(|bytes| *bytes >= EARNED_MIN).unwrap_or(0)
            }
            _ => u64::MAX,
        }
    }

    fn starved(&mut self, cursor: CursorId, range: ByteRange, now: Duration) {
        let limit = self.window_limit(self.room(range.len), now).min(self.earned(cursor));
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            cursor.starved(range, limit);
        }
    }

    /// Starts the fetches of one cursor. `own` are bytes its reader has just requested itself: they do not count
    /// against the window, since the fetches follow right behind them.
    fn fetch_for(&mut self, id: CursorId, own: u64, now: Duration, fetches: &mut PrefetchRequests) {
        let Some(read_max) = self.cursors.get_mut(id).map(|cursor| cursor.read_max()) else { return };
        let room = self.room(read_max);
        let limit = self.window_limit(room, now).min(self.earned(id));
        while fetches.len() < FETCHES_MAX {
            let Some(range) = self.cursors.get_mut(id).and_then(|cursor| cursor.next_fetch(limit)) else { return };
            if self.start(id, range, room.saturating_add(own), now, fetches) != FetchStart::Done {
                return;
            }
            if let Some(cursor) = self.cursors.get_mut(id) {
                cursor.fetching(range);
            }
        }
    }

    /// Shares the free part of the window among all cursors, then the hints. To be called when a request is over.
    pub(super) fn fetch_more(&mut self, now: Duration, fetches: &mut PrefetchRequests) {
        if self.link.in_flight() >= self.room(READ_MAX) {
            return;
        }
        for nth in 0..self.cursors.begin_round() {
            if let Some(id) = self.cursors.in_turn(nth, now).map(|cursor| cursor.id) {
                self.fetch_for(id, 0, now, fetches);
            }
        }
        while fetches.len() < FETCHES_MAX {
            let Some(range) = self.hints.peek() else { return };
            match self.start(PrefetchHints::OWNER, range, self.link.bytes(), now, fetches) {
                FetchStart::Done => self.hints.pop(range),
                FetchStart::LinkFull => return,
                // By the time there is room, the hint will be old.
                FetchStart::MemoryFull => return self.hints.clear(),
            }
        }
    }

    /// Starts fetching the absent parts of the range, if there is room for all of them.
    fn start(
        &mut self,
        owner: CursorId,
        range: ByteRange,
        room: u64,
        now: Duration,
        fetches: &mut PrefetchRequests,
    ) -> FetchStart {
        let absent = self.cache.absent(range);
        if absent.is_empty() || !self.writes.allow(range) {
            return FetchStart::Done;
        }
        let bytes = absent.iter().map(|part| part.len).sum::<u64>();
        let in_flight = self.link.in_flight();
        if in_flight > 0 && (in_flight.saturating_add(bytes) > room || self.link.must_drain(now)) {
            return FetchStart::LinkFull;
        }
        if self.cache.lacks_room(bytes) {
            let active = self.cursors.active_ids(now);
            let idle = |other: CursorId| other != owner && active.binary_search(&other).is_err();
            if !self.cache.make_room(bytes, idle, &mut self.stats) {
                return FetchStart::MemoryFull;
            }
        }
        for range in absent {
            let id = PrefetchId(self.next_fetch);
            self.next_fetch += 1;
            let pending = self.cache.start_fetch(id, owner, range);
            fetches.push(PrefetchRequest { range, id, owner, pending, sent: self.link.sent(range.len, now) });
        }
        FetchStart::Done
    }
}

/// The result of an attempt to fetch a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchStart {
    /// The range is in flight, held, or must not be fetched: continue with the next one.
    Done,
    /// The window of the link is full; try again when a request is over.
    LinkFull,
    /// Every chunk held is still wanted.
    MemoryFull,
}
