//! How much is copied in the background, and when.
//!
//! A reader that waits for the source shares the link with the background. What the background has on its way then
//! is what the reader's own request queues behind, and no cleverness at the receiving end can call it back. So while
//! somebody waits, the background has one small request under way and no more; when nobody does, it starts as small,
//! and grows by what arrives, which doubles it each round trip, up to what keeps the link busy: a reader that thinks
//! for a moment between two reads finds the queue as short as it left it.
//!
//! What keeps the link busy follows from Little's law: so many bytes arrive in a second, and a request takes so long
//! when nothing is before it. More than the product of both only makes the queue longer, so half as much again is
//! the limit. (The shortest time counts, as in TCP Vegas and LEDBAT, RFC 6817: a request at the beginning of a
//! connection takes several round trips, and an average would go on believing in them.)

use std::time::Duration;

use super::{FETCH_BYTES_MAX, GRAIN};

/// Bytes of background requests under way when it starts, and nobody waits. However slow the source, as much is
/// allowed in the end.
const START_BYTES: u64 = 4 * GRAIN;
/// The time a source and two schedulers take to turn a request round; on a fast link it is most of what there is to
/// hide.
const TURNAROUND: Duration = Duration::from_millis(2);
/// Background requests under way at once, however small they are.
const REQUESTS_MAX: usize = 64;
/// How long to leave a source or a drive alone that failed; doubled each time it fails again.
const BACK_OFF_MIN: Duration = Duration::from_millis(500);
/// But no longer than this.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// The background's share of the link.
pub(super) struct Pace {
    allowed: u64,
    ahead_bytes: u64,
    ahead_requests: usize,
    /// Bytes that have arrived in all, whoever they were for.
    delivered: u64,
    /// The least time a request took.
    shortest: Option<Duration>,
    /// Bytes a second, lately.
    rate: u64,
    source: BackOff,
    drive: BackOff,
}

/// A request under way; hand it back to [`Pace::done`] exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    bytes: u64,
    ahead: bool,
    at: Duration,
    delivered: u64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            allowed: START_BYTES,
            ahead_bytes: 0,
            ahead_requests: 0,
            delivered: 0,
            shortest: None,
            rate: 0,
            source: BackOff::default(),
            drive: BackOff::default(),
        }
    }

    /// A request of `bytes` leaves: one of the background (`ahead`), or one that somebody waits for.
    pub(super) fn send(&mut self, bytes: u64, ahead: bool, now: Duration) -> Sent {
        if ahead {
            self.ahead_bytes += bytes;
            self.ahead_requests += 1;
        }
        Sent { bytes, ahead, at: now, delivered: self.delivered }
    }

    /// It is over; `arrived` unless it failed. `calm` if nobody waits for anything.
    pub(super) fn done(&mut self, sent: Sent, arrived: bool, calm: bool, now: Duration) {
        if sent.ahead {
            self.ahead_bytes = self.ahead_bytes.saturating_sub(sent.bytes);
            self.ahead_requests = self.ahead_requests.saturating_sub(1);
        }
        if !arrived {
            return;
        }
        self.delivered = self.delivered.wrapping_add(sent.bytes);
        let took = now.saturating_sub(sent.at);
        self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
        let sample = bytes_per_second(self.delivered.wrapping_sub(sent.delivered), took);
        // Up at once, because what limits the rate may be what is under way; down slowly.
        self.rate = sample.max(self.rate - self.rate / 8 + sample / 8);
        if sent.ahead && calm {
            self.allowed = (self.allowed + sent.bytes).min(self.busy_bytes().max(START_BYTES));
        }
    }

    /// What is to be under way to keep the link busy.
    fn busy_bytes(&self) -> u64 {
        let shortest = self.shortest.unwrap_or_default();
        let time = shortest + (shortest / 2).max(TURNAROUND);
        u64::try_from(u128::from(self.rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// Somebody waits for the source.
    pub(super) fn give_way(&mut self) {
        self.allowed = GRAIN;
    }

    /// The size of the next background request; `None` if there must be none now. A power of two.
    pub(super) fn next_request(&self, now: Duration) -> Option<u64> {
        // A quarter, so that there is always another on its way while one is dealt with.
        let quarter = (self.allowed / 4).clamp(GRAIN, FETCH_BYTES_MAX);
        let bytes = 1 << quarter.ilog2();
        let room = self.ahead_requests == 0 || self.ahead_bytes + bytes <= self.allowed;
        let in_good_order =
            self.source.permits(now, self.ahead_requests) && self.drive.permits(now, self.ahead_requests);
        (room && in_good_order && self.ahead_requests < REQUESTS_MAX).then_some(bytes)
    }

    pub(super) fn source_answered(&mut self) {
        self.source = BackOff::default();
    }

    pub(super) fn source_failed(&mut self, now: Duration) {
        self.source.failed(now);
        self.allowed = GRAIN;
    }

    pub(super) fn drive_answered(&mut self) {
        self.drive = BackOff::default();
    }

    pub(super) fn drive_failed(&mut self, now: Duration) {
        self.drive.failed(now);
        self.allowed = GRAIN;
    }

    /// When the background may try again what failed; `None` if nothing is in the way.
    pub(super) fn resumes_at(&self) -> Option<Duration> {
        self.source.until.max(self.drive.until)
    }
}

fn bytes_per_second(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Leaves something that fails alone for a while; then a single request tries it.
#[derive(Debug, Default)]
struct BackOff {
    until: Option<Duration>,
    pause: Duration,
}

impl BackOff {
    fn failed(&mut self, now: Duration) {
        // Requests sent together fail together, and are one failure.
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        self.pause = (self.pause * 2).clamp(BACK_OFF_MIN, BACK_OFF_MAX);
        self.until = Some(now + self.pause);
    }

    fn permits(&self, now: Duration, under_way: usize) -> bool {
        self.until.is_none_or(|until| now >= until && under_way == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_left_alone_ever_longer() {
        let mut pace = Pace::new();
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pace.source_failed(now);
            pace.source_failed(now);
            assert_eq!(pace.next_request(now), None);
            let until = pace.resumes_at().unwrap();
            pauses.push((until - now).as_millis());
            now = until;
            assert!(pace.next_request(now).is_some());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        pace.source_answered();
        assert_eq!(pace.resumes_at(), None);
    }

    #[test]
    fn who_waits_leaves_one_small_request_of_the_background() {
        let mut pace = Pace::new();
        let now = Duration::ZERO;
        assert_eq!(pace.next_request(now), Some(GRAIN));
        pace.give_way();
        let bytes = pace.next_request(now).unwrap();
        assert_eq!(bytes, GRAIN);
        let sent = pace.send(bytes, true, now);
        assert_eq!(pace.next_request(now), None);
        pace.done(sent, true, true, now + Duration::from_millis(20));
        assert_eq!(pace.allowed, 2 * GRAIN, "and grows again once nobody waits");
    }
}
