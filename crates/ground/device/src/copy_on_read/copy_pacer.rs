//! The pace of the background copy: how many bytes it keeps in flight, and when it pauses.
//!
//! A reader that waits for the source shares the link with the background copy, and queues behind what the copy has in
//! flight; the receiving end cannot recall those bytes. So while any reader waits, the copy keeps one small request in
//! flight. When none waits, the limit starts as small and grows by the bytes that arrive: it doubles each round trip,
//! up to the bytes that keep the link busy. A reader that pauses briefly between two reads therefore still finds a
//! short queue.
//!
//! The limit is at most 1.5 times the bandwidth-delay product (more on links with very short round trips): a higher one
//! only lengthens the queue.

use std::time::Duration;

use super::{FETCH_BYTES_MAX, GRAIN};
use crate::link_estimate::{LinkEstimator, LinkModel, TURNAROUND, TrackedRequest};

/// The limit of bytes in flight at the start. While no reader waits, the limit grows at least this far, however slow
/// the source is.
const START_BYTES: u64 = 4 * GRAIN;
/// Background requests in flight at once, however small they are.
const REQUESTS_MAX: usize = 64;
/// The pause after a source or a drive has failed; doubled each time it fails again.
const BACK_OFF_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// The background copy's share of the link.
pub(super) struct CopyPacer {
    link: LinkEstimator,
    /// Bytes the background copy may have in flight.
    allowed: u64,
    ahead_bytes: u64,
    ahead_requests: usize,
    source: BackOff,
    drive: BackOff,
}

/// A request in flight. Pass it to [`CopyPacer::finished`] exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacedRequest {
    request: TrackedRequest,
    /// Whether it is the background copy's; otherwise a reader waits for it.
    ahead: bool,
}

impl CopyPacer {
    pub(super) fn new() -> Self {
        Self {
            link: LinkEstimator::default(),
            allowed: START_BYTES,
            ahead_bytes: 0,
            ahead_requests: 0,
            source: BackOff::default(),
            drive: BackOff::default(),
        }
    }

    /// Notes that a request for `bytes` leaves: the background copy's (`ahead`), or one a reader waits for.
    pub(super) fn sent(&mut self, bytes: u64, ahead: bool, now: Duration) -> PacedRequest {
        if ahead {
            self.ahead_bytes += bytes;
            self.ahead_requests += 1;
        }
        PacedRequest { request: self.link.sent(bytes, now), ahead }
    }

    /// Notes that a request is over; `arrived` unless it failed. `calm` if no reader waits.
    pub(super) fn finished(&mut self, paced: PacedRequest, arrived: bool, calm: bool, now: Duration) {
        let bytes = paced.request.bytes();
        if paced.ahead {
            self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
            self.ahead_requests = self.ahead_requests.saturating_sub(1);
        }
        self.link.finished(paced.request, arrived, now);
        if arrived && paced.ahead && calm {
            self.allowed = (self.allowed + bytes).min(self.busy_bytes().max(START_BYTES));
        }
    }

    /// Returns the number of bytes in flight that keep the link busy.
    fn busy_bytes(&self) -> u64 {
        let busy = |link: LinkModel| {
            let margin = (link.round_trip / 2).max(TURNAROUND);
            link.bytes_in(link.round_trip.saturating_add(margin))
        };
        self.link.model().map_or(0, busy)
    }

    /// Notes that a reader waits for the source.
    pub(super) fn give_way(&mut self) {
        self.allowed = GRAIN;
    }

    /// Returns the size of the next background request, a power of two; `None` if there must be none now.
    pub(super) fn next_request(&self, now: Duration) -> Option<u64> {
        // A quarter, so that others are in flight while one is processed.
        let quarter = (self.allowed / 4).clamp(GRAIN, FETCH_BYTES_MAX);
        let bytes = 1 << quarter.ilog2();
        let allowed = if self.link.must_drain(now) { 0 } else { self.allowed };
        let room = self.ahead_requests == 0 || self.ahead_bytes + bytes <= allowed;
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

    /// Returns when the background copy may try again after a failure; `None` if it need not wait.
    pub(super) fn resumes_at(&self) -> Option<Duration> {
        self.source.until.max(self.drive.until)
    }
}

/// Pauses requests to a source or drive that fails; after the pause, a single request tests it.
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

    fn permits(&self, now: Duration, in_flight: usize) -> bool {
        self.until.is_none_or(|until| now >= until && in_flight == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_lengthen_the_pause() {
        let mut pacer = CopyPacer::new();
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pacer.source_failed(now);
            pacer.source_failed(now);
            assert_eq!(pacer.next_request(now), None);
            let until = pacer.resumes_at().unwrap();
            pauses.push((until - now).as_millis());
            now = until;
            assert!(pacer.next_request(now).is_some());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        pacer.source_answered();
        assert_eq!(pacer.resumes_at(), None);
    }

    #[test]
    fn a_waiting_reader_limits_the_background_to_one_small_request() {
        let mut pacer = CopyPacer::new();
        let now = Duration::ZERO;
        assert_eq!(pacer.next_request(now), Some(GRAIN));
        pacer.give_way();
        let bytes = pacer.next_request(now).unwrap();
        assert_eq!(bytes, GRAIN);
        let sent = pacer.sent(bytes, true, now);
        assert_eq!(pacer.next_request(now), None);
        pacer.finished(sent, true, true, now + Duration::from_millis(20));
        assert_eq!(pacer.allowed, 2 * GRAIN, "it grows again once no reader waits");
    }
}
