//! How much may be on its way.
//!
//! What keeps a link busy follows from Little's law: so many bytes arrive in a second, and a request takes so long when
//! nothing is before it. Twice that product may be on its way: once would do if it were known; twice lets the estimate
//! rise where it is itself what limits it, and costs who reads meanwhile one more round trip at most. The rate is the
//! largest seen lately, for a pipe that is not full shows less than the truth, and the time is the shortest of requests
//! that found the link idle, for others had to queue. Samples grow old by requests that left while the link was busy: others
//! say little of the rate, and whoever reads a little at a time would make a link look slow. (So a link that has become slower
//! is known to be when it is filled again.) (Nothing is taken off for the time that the bytes themselves take:
//! a rate believed too low would make the time too short, and so keep itself low.)

use std::time::Duration;

use super::{FETCH_BYTES, FETCH_BYTES_FIRST};
use crate::lately::Lately;

/// Until a link has carried this much, little is known of it, and as much as [`START_BYTES`] may be on its way.
const START_DELIVERED: u64 = 4 << 20;
const START_BYTES: u64 = 1 << 20;
/// However short and slow the link is.
const LEAST_BYTES: u64 = 256 << 10;
/// However long and fast it is.
const MOST_BYTES: u64 = 32 << 20;
/// The time a source and two schedulers take to turn a request round; on a fast link it is most of what there is to
/// hide.
const TURNAROUND: Duration = Duration::from_millis(2);
/// A request is alone on the link if no more than this is on its way.
const ALONE_BYTES: u64 = 16 << 10;

/// An estimate of the link, fed by every request.
#[derive(Default)]
pub(super) struct Pace {
    in_flight: u64,
    delivered: u64,
    /// Bytes a second.
    rate: Lately<u64>,
    /// What requests take that are alone.
    time: Lately<Duration>,
}

/// A request under way; hand it back to [`Pace::done`] exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    bytes: u64,
    at: Duration,
    delivered: u64,
    alone: bool,
    /// Whether the link was kept busy, as far as was known.
    busy: bool,
}

impl Pace {
    /// A request of `bytes` leaves.
    pub(super) fn send(&mut self, bytes: u64, now: Duration) -> Sent {
        let alone = self.in_flight <= ALONE_BYTES;
        self.in_flight += bytes;
        let product = self.carried_in(self.time().unwrap_or_default());
        let busy = u128::from(self.in_flight) * 2 >= product;
        Sent { bytes, at: now, delivered: self.delivered, alone, busy }
    }

    /// It is over; `arrived` unless it failed or was given up.
    pub(super) fn done(&mut self, sent: Sent, arrived: bool, now: Duration) {
        self.in_flight = self.in_flight.saturating_sub(sent.bytes);
        if !arrived {
            return;
        }
        self.delivered = self.delivered.saturating_add(sent.bytes);
        let took = now.saturating_sub(sent.at);
        let rate = u128::from(self.delivered - sent.delivered) * 1_000_000_000 / took.as_nanos().max(1);
        self.rate.note(u64::try_from(rate).unwrap_or(u64::MAX), sent.busy, u64::max);
        if sent.alone {
            self.time.note(took, true, Duration::min);
        }
    }

    /// Bytes on their way.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// How many bytes may be on their way before what nobody waits for has to wait.
    pub(super) fn room(&self) -> u64 {
        let least = if self.delivered < START_DELIVERED { START_BYTES } else { LEAST_BYTES };
        let (Some(_), Some(time)) = (self.rate(), self.time()) else { return least };
        let busy = self.carried_in(2 * time + TURNAROUND);
        u64::try_from(busy).unwrap_or(u64::MAX).clamp(least, MOST_BYTES)
    }

    /// How many bytes the link carries in that time, as far as is known.
    fn carried_in(&self, time: Duration) -> u128 {
        u128::from(self.rate().unwrap_or(0)) * time.as_nanos() / 1_000_000_000
    }

    /// The largest request for what nobody waits for.
    pub(super) fn fetch_bytes(&self) -> u64 {
        if self.delivered < START_DELIVERED { FETCH_BYTES_FIRST } else { FETCH_BYTES }
    }

    /// Bytes a second that the link carries.
    pub(super) fn rate(&self) -> Option<u64> {
        self.rate.best(u64::max)
    }

    /// What a request takes with nothing before it.
    pub(super) fn time(&self) -> Option<Duration> {
        self.time.best(Duration::min)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Keeps as much on its way as there is room for, over a line of so many bytes a second and so long, in requests of
    /// 256 KiB; the room there is after each second.
    fn drive(rate: u64, trip: Duration, seconds: u64) -> Vec<u64> {
        const REQUEST: u64 = 256 << 10;
        let mut pace = Pace::default();
        let mut line: VecDeque<(Duration, Sent)> = VecDeque::new();
        let (mut now, mut free_at, mut rooms) = (Duration::ZERO, Duration::ZERO, Vec::new());
        while rooms.len() < seconds as usize {
            while line.is_empty() || pace.in_flight() + REQUEST <= pace.room() {
                let sent = pace.send(REQUEST, now);
                free_at = free_at.max(now + trip / 2) + Duration::from_nanos(REQUEST * 1_000_000_000 / rate);
                line.push_back((free_at + trip / 2, sent));
            }
            let (at, sent) = line.pop_front().unwrap();
            now = at;
            pace.done(sent, true, now);
            if now.as_secs() > rooms.len() as u64 {
                rooms.push(pace.room());
            }
        }
        rooms
    }

    #[test]
    fn lines_are_kept_busy_and_queues_short() {
        for (mbit, trip_ms) in [(10, 40), (100, 20), (100, 40), (1000, 20), (1000, 40), (1000, 1)] {
            let (rate, trip) = (mbit * 125_000, Duration::from_millis(trip_ms));
            let product = rate * trip_ms / 1000;
            for room in drive(rate, trip, 3) {
                assert!(room >= product, "{mbit} Mbit/s, {trip_ms} ms: {room} of {product}");
                let most = (3 * product + 4 * (256 << 10)).max(LEAST_BYTES);
                assert!(room <= most, "{mbit} Mbit/s, {trip_ms} ms: {room} of {product}");
            }
        }
    }

    #[test]
    fn who_reads_a_little_at_a_time_does_not_make_a_line_look_slow() {
        let (mut pace, mut now, trip) = (Pace::default(), Duration::ZERO, Duration::from_millis(20));
        let together = |pace: &mut Pace, now: &mut Duration, requests: u64, bytes: u64| {
            let sent: Vec<_> = (0..requests).map(|_| pace.send(bytes, *now)).collect();
            *now += trip;
            for sent in sent {
                *now += Duration::from_nanos(bytes * 1_000_000_000 / 125_000_000);
                pace.done(sent, true, *now);
            }
        };
        together(&mut pace, &mut now, 1, 4096);
        together(&mut pace, &mut now, 32, 256 << 10);
        let rate = pace.rate().unwrap();
        assert!(rate > 90_000_000, "{rate}");
        for _ in 0..1000 {
            together(&mut pace, &mut now, 1, 4096);
            together(&mut pace, &mut now, 3, 64 << 10);
        }
        assert_eq!(pace.rate(), Some(rate));
        // But a line that has become slower is found to be when it is filled.
        for _ in 0..20 {
            let sent: Vec<_> = (0..32).map(|_| pace.send(256 << 10, now)).collect();
            for sent in sent {
                now += Duration::from_millis(20);
                pace.done(sent, true, now);
            }
        }
        assert!(pace.rate().unwrap() < 15_000_000, "{:?}", pace.rate());
    }
}
