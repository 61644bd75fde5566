//! The whole layer as a state machine: events in, what to do out. It does no I/O and reads no clock.

use std::sync::Arc;
use std::time::Duration;

use super::cache::{Cache, Piece, Pieces};
use super::chunk::{FetchId, Landing};
use super::cursor::CursorId;
use super::cursors::Cursors;
use super::hints::Hints;
use super::link_window::LinkWindow;
use super::stats::PrefetchStats;
use super::writes::{WriteId, Writes};
use super::{MIB, PrefetchConfig};
use crate::link_estimate::TrackedRequest;
use crate::{ByteRange, Data};

/// Fetches to start.
pub(super) type Fetches = Vec<Fetch>;

/// Fetches that one event may start.
const FETCHES_MAX: usize = 64;
/// A stream that has to earn its window has to come so far before it gets any, in bytes.
const EARNED_MIN: u64 = 512 * 1024;
/// Reads longer than this are fetched ahead as if they were this long.
const READ_MAX: u64 = 2 * MIB;

/// A range to be read from the device, the outcome to be handed to [`Engine::fetched`].
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) range: ByteRange,
    id: FetchId,
    owner: CursorId,
    landing: Arc<Landing>,
    sent: TrackedRequest,
}

/// What became of a fetch.
#[derive(Debug)]
pub(super) enum Outcome {
    Arrived(Data),
    /// It had not to come from anywhere, so it says nothing of the link: what is below may keep something, too.
    AtHand(Data),
    Failed,
    /// It was never sent, or nobody waited for the answer.
    GivenUp,
}

/// How a read is to be answered.
#[derive(Debug)]
pub(super) enum Plan {
    /// By the device: the layer has nothing to do with it.
    Pass,
    /// With this.
    Hit(Data),
    /// Piece by piece. What is missing is counted by the ticket, to be handed to [`Engine::demanded`].
    Gather(Pieces, TrackedRequest),
}

/// See the module's essay.
pub(super) struct Engine {
    config: PrefetchConfig,
    cursors: Cursors,
    cache: Cache,
    link: LinkWindow,
    writes: Writes,
    hints: Hints,
    next_fetch: u64,
    stats: PrefetchStats,
}

impl Engine {
    /// For a device of `size` bytes.
    pub(super) fn new(config: PrefetchConfig, size: u64) -> Self {
        Self {
            config,
            cursors: Cursors::new(size),
            cache: Cache::new(config.budget_bytes),
            link: LinkWindow::new(config.window_bytes_first),
            writes: Writes::default(),
            hints: Hints::default(),
            next_fetch: 1,
            stats: PrefetchStats::default(),
        }
    }

    /// A read of a range that is not empty and lies within the device. The `fetches` are to be started after
    /// what is missing has been asked for.
    pub(super) fn read(&mut self, range: ByteRange, now: Duration, fetches: &mut Fetches) -> Plan {
        let (link, dear) = (&self.link, self.config.earned);
        let through = |step: u64| !dear && link.gap_is_cheap(step, range.len);
        let cursor = self.cursors.place(range, now, |found| found.step.is_some_and(through));
        let pieces = self.cache.read(range, &mut self.stats);
        let plan = match cursor {
            None if pieces.is_empty() && !self.link.wants_sample(now) => {
                self.stats.misses += 1;
                return Plan::Pass;
            }
            _ => self.plan(range, pieces, now),
        };
        if let Some(cursor) = cursor {
            let missing = match &plan {
                Plan::Gather(_, sent) => {
                    self.starved(cursor, range, now);
                    sent.bytes()
                }
                _ => 0,
            };
            self.fetch_for(cursor, missing, now, fetches);
        }
        plan
    }

    /// Returns prefetched data predicted to follow `range`, read on behalf of its stream. Nothing of a stream that goes forward
    /// without gaps: a kernel reads ahead of that by itself.
    pub(super) fn take_prefetched(
        &mut self,
        range: ByteRange,
        now: Duration,
        fetches: &mut Fetches,
    ) -> Vec<(u64, Data)> {
        let Some(predicted) = self.cursors.at(range).map(|cursor| cursor.predicted()) else { return Vec::new() };
        let mut prefetched = Vec::new();
        for range in predicted {
            if !self.cache.holds(range) {
                break;
            }
            if let Plan::Hit(data) = self.read(range, now, fetches) {
                prefetched.push((range.offset, data));
            }
        }
        prefetched
    }

    fn plan(&mut self, range: ByteRange, mut pieces: Pieces, now: Duration) -> Plan {
        if pieces.is_empty() {
            pieces.push(Piece::Missing(range));
        }
        let (mut missing, mut waits) = (0, false);
        for piece in &pieces {
            match piece {
                Piece::Missing(range) => missing += range.len,
                Piece::Flying { .. } => waits = true,
                Piece::Here(_) => {}
            }
        }
        self.stats.waits += u64::from(waits);
        self.stats.misses += u64::from(missing > 0);
        if missing > 0 || waits {
            return Plan::Gather(pieces, self.link.sent(missing, now));
        }
        self.stats.hits += 1;
        let mut data = Data::new();
        for piece in pieces {
            if let Piece::Here(part) = piece {
                data.append(part);
            }
        }
        Plan::Hit(data)
    }

    /// What was missing of a read has come from the device (`crossed`), or was at hand, or has not come.
    pub(super) fn demanded(&mut self, sent: TrackedRequest, crossed: bool, now: Duration) {
        self.link.finished(sent, crossed, now);
    }

    /// A fetch is over.
    pub(super) fn fetched(&mut self, fetch: &Fetch, outcome: Outcome, now: Duration) {
        let crossed = matches!(outcome, Outcome::Arrived(_));
        let data = match outcome {
            // A device that sends less than it was asked for is broken; nothing of it is used.
            Outcome::Arrived(data) | Outcome::AtHand(data) if data.len() == fetch.range.len => Some(data),
            Outcome::Arrived(_) | Outcome::AtHand(_) | Outcome::Failed => {
                self.stats.failures += 1;
                if let Some(cursor) = self.cursors.get_mut(fetch.owner) {
                    cursor.failed(fetch.range);
                }
                None
            }
            Outcome::GivenUp => None,
        };
        self.link.finished(fetch.sent, crossed && data.is_some(), now);
        self.cache.land(fetch.id, fetch.range, data.clone(), &mut self.stats);
        fetch.landing.land(data);
    }

    /// A write, of any kind, begins.
    pub(super) fn write_begins(&mut self, range: ByteRange) -> WriteId {
        self.writes.begin(range)
    }

    /// It is over; `done` unless it failed or was given up. Whoever reads from now on sees it.
    pub(super) fn write_ends(&mut self, id: WriteId, done: bool) {
        if let Some(range) = self.writes.end(id, done) {
            self.cache.invalidate(range, &mut self.stats);
        }
    }

    /// Someone says that the range will be read soon.
    pub(super) fn hint(&mut self, range: ByteRange, now: Duration, fetches: &mut Fetches) {
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

    /// What the link has room for on behalf of a stream whose reads are up to `read_max` long. Whoever reads long
    /// runs at a time would, with less than two of them on the way, wait for the second half of each.
    fn room(&self, read_max: u64) -> u64 {
        self.link.bytes().max(2 * read_max.min(READ_MAX))
    }

    /// The largest window a stream may have now.
    fn window_limit(&self, room: u64, now: Duration) -> u64 {
        let share = self.cache.budget_unread() / self.cursors.active(now).max(1);
        room.min(share).min(self.config.window_bytes_max)
    }

    /// The largest window a stream has earned.
    fn earned(&mut self, cursor: CursorId) -> u64 {
        match self.cursors.get_mut(cursor) {
            Some(cursor) if self.config.earned && cursor.has_gaps() => 0,
            Some(cursor) if self.config.earned => Some(cursor.come()).filter(|come| *come >= EARNED_MIN).unwrap_or(0),
            _ => u64::MAX,
        }
    }

    fn starved(&mut self, cursor: CursorId, range: ByteRange, now: Duration) {
        let limit = self.window_limit(self.room(range.len), now).min(self.earned(cursor));
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            cursor.starved(range, limit);
        }
    }

    /// Starts what one cursor wants. `own` are bytes its reader has just asked for itself: they do not count
    /// against the room on the link, since the fetches are to follow right behind them.
    fn fetch_for(&mut self, id: CursorId, own: u64, now: Duration, fetches: &mut Fetches) {
        let Some(read_max) = self.cursors.get_mut(id).map(|cursor| cursor.read_max()) else { return };
        let room = self.room(read_max);
        let limit = self.window_limit(room, now).min(self.earned(id));
        while fetches.len() < FETCHES_MAX {
            let Some(range) = self.cursors.get_mut(id).and_then(|cursor| cursor.next_fetch(limit)) else { return };
            if self.start(id, range, room.saturating_add(own), now, fetches) != Start::Done {
                return;
            }
            if let Some(cursor) = self.cursors.get_mut(id) {
                cursor.fetching(range);
            }
        }
    }

    /// Shares what room there is on the link among all cursors, then the hints. To be called when a request is
    /// over.
    pub(super) fn fetch_more(&mut self, now: Duration, fetches: &mut Fetches) {
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
            match self.start(Hints::OWNER, range, self.link.bytes(), now, fetches) {
                Start::Done => self.hints.pop(range),
                Start::LinkFull => return,
                // By the time there is, the hint will be old.
                Start::MemoryFull => return self.hints.clear(),
            }
        }
    }

    /// Starts fetching what is absent of the range, if there is room now for all of it.
    fn start(&mut self, owner: CursorId, range: ByteRange, room: u64, now: Duration, fetches: &mut Fetches) -> Start {
        let absent = self.cache.absent(range);
        if absent.is_empty() || !self.writes.allow(range) {
            return Start::Done;
        }
        let bytes = absent.iter().map(|part| part.len).sum::<u64>();
        let in_flight = self.link.in_flight();
        if in_flight > 0 && (in_flight.saturating_add(bytes) > room || self.link.must_drain(now)) {
            return Start::LinkFull;
        }
        let cursors = &self.cursors;
        if !self.cache.make_room(bytes, |other| other != owner && cursors.is_idle(other, now), &mut self.stats) {
            return Start::MemoryFull;
        }
        for range in absent {
            let id = FetchId(self.next_fetch);
            self.next_fetch += 1;
            let landing = self.cache.take_off(id, owner, range);
            fetches.push(Fetch { range, id, owner, landing, sent: self.link.sent(range.len, now) });
        }
        Start::Done
    }
}

/// What came of an attempt to fetch a range ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It is on its way, or here, or must not be fetched: on to the next.
    Done,
    /// As much is on its way as the link takes; try again when something has arrived.
    LinkFull,
    /// Everything held is still wanted.
    MemoryFull,
}
