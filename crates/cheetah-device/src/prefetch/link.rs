//! What is known of the way to the device: its bandwidth, its round trip, and so how much must be on its way
//! to keep it busy.

use std::time::Duration;

use super::MIB;

/// Until something is measured: enough for a fast local network, little enough for a slow one.
const WINDOW_UNKNOWN: u64 = MIB;
/// Even on a short slow link this much may be on its way, or requests would be too small to be worth sending.
const WINDOW_MIN: u64 = 256 * 1024;
/// The time a device and two schedulers take to turn a request round, which no bandwidth-delay product knows of:
/// on a fast network it is most of what there is to hide.
const TURNAROUND: Duration = Duration::from_millis(2);
/// What one more request costs both ends in work, whatever its length.
const REQUEST_COST: Duration = Duration::from_micros(10);
/// Small requests that may usefully be under way at once.
const DEPTH: u32 = 64;
/// Samples after which an old extreme is forgotten.
const SAMPLES: u32 = 64;

/// An estimate of the link, fed by every request that is accounted for.
///
/// Bandwidth is the largest delivery rate seen lately: bytes delivered, by all requests, between the sending and
/// the finishing of one, over the time between. A pipe that is not full gives samples below the truth, never
/// above, hence the largest. The round trip is the smallest time a request took which found the link idle; others
/// measure the queue before them, and a window made from that would lengthen the queue it is made from.
pub(super) struct Link {
    delivered: u64,
    in_flight: u64,
    rate: Extreme,
    trip: Extreme,
}

/// A request under way; hand it back to [`Link::done`] exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    bytes: u64,
    at: Duration,
    delivered: u64,
    alone: bool,
}

impl Sent {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Link {
    pub(super) fn new() -> Self {
        Self { delivered: 0, in_flight: 0, rate: Extreme::new(u64::max), trip: Extreme::new(u64::min) }
    }

    /// Bytes on their way, of reads and fetches together.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A request for `bytes` leaves now.
    pub(super) fn send(&mut self, bytes: u64, now: Duration) -> Sent {
        let sent = Sent { bytes, at: now, delivered: self.delivered, alone: self.in_flight == 0 };
        self.in_flight += bytes;
        sent
    }

    /// It is over; `arrived` unless it failed or was given up.
    pub(super) fn done(&mut self, sent: Sent, arrived: bool, now: Duration) {
        self.in_flight -= sent.bytes;
        if !arrived || sent.bytes == 0 {
            return;
        }
        self.delivered += sent.bytes;
        let nanos = now.saturating_sub(sent.at).as_nanos().max(1);
        let rate = u128::from(self.delivered - sent.delivered) * 1_000_000_000 / nanos;
        self.rate.note(u64::try_from(rate).unwrap_or(u64::MAX));
        if sent.alone {
            self.trip.note(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
    }

    /// Bytes a second.
    pub(super) fn bandwidth(&self) -> Option<u64> {
        self.rate.value()
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.trip.value().map(Duration::from_nanos)
    }

    /// How many bytes may be on their way, and how many one stream may want ready: twice the bandwidth-delay
    /// product. Once would do if it were known; twice lets the estimate rise where it is itself what limits it.
    pub(super) fn window(&self) -> u64 {
        match (self.bandwidth(), self.round_trip()) {
            (Some(bandwidth), Some(trip)) => bytes_in(bandwidth, 2 * trip + TURNAROUND).max(WINDOW_MIN),
            _ => WINDOW_UNKNOWN,
        }
    }

    /// Whether records of `len` bytes every `step` are better had by fetching everything between them too:
    /// whether the gap takes less time to carry than another request costs.
    pub(super) fn gap_is_cheap(&self, step: u64, len: u64) -> bool {
        let bandwidth = self.bandwidth().unwrap_or(100 * MIB);
        let trip = self.round_trip().unwrap_or(Duration::from_micros(500));
        step.saturating_sub(len) <= bytes_in(bandwidth, (trip / DEPTH).max(REQUEST_COST))
    }
}

fn bytes_in(bandwidth: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bandwidth) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}

/// The extreme of between the last [`SAMPLES`] and twice as many samples.
struct Extreme {
    better: fn(u64, u64) -> u64,
    now: Option<u64>,
    before: Option<u64>,
    samples: u32,
}

impl Extreme {
    fn new(better: fn(u64, u64) -> u64) -> Self {
        Self { better, now: None, before: None, samples: 0 }
    }

    fn note(&mut self, sample: u64) {
        if self.samples == SAMPLES {
            (self.before, self.now, self.samples) = (self.now, None, 0);
        }
        self.samples += 1;
        self.now = Some(self.now.map_or(sample, |best| (self.better)(best, sample)));
    }

    fn value(&self) -> Option<u64> {
        match (self.now, self.before) {
            (Some(a), Some(b)) => Some((self.better)(a, b)),
            (a, b) => a.or(b),
        }
    }
}
