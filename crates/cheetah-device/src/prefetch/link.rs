//! What is known of the way to the device: its bandwidth, its round trip, and so how much must be on its way
//! to keep it busy.

use std::time::Duration;

use super::MIB;
use crate::lately::Lately;

/// Until something is fetched ahead: that of the network most people have, in bytes a second.
const BANDWIDTH_UNKNOWN: u64 = 100 * MIB;
/// Even on a short slow link this much may be on its way, or requests would be too small to be worth sending.
const WINDOW_MIN: u64 = 256 * 1024;
/// The time a device and two schedulers take to turn a request round, which no bandwidth-delay product knows of:
/// on a fast network it is most of what there is to hide.
const TURNAROUND: Duration = Duration::from_millis(2);
/// What one more request costs both ends in work, whatever its length.
const REQUEST_COST: Duration = Duration::from_micros(10);
/// Small requests that may usefully be under way at once.
const DEPTH: u32 = 64;
/// How often the round trip is measured while nothing but unaccounted requests go by.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// An estimate of the link, fed by every request that is accounted for.
///
/// Bandwidth is the largest delivery rate seen lately: bytes delivered, by all requests, between the sending and
/// the finishing of one, over the time between. A pipe that is not full gives samples below the truth, never
/// above, hence the largest; and a time of lone small reads is no reason to forget it, so only fetches age it. The round trip is taken from requests that found the link idle; others measure the
/// queue before them, and a window made from that would lengthen the queue it is made from.
pub(super) struct Link {
    delivered: u64,
    in_flight: u64,
    rate: Lately<u64>,
    trip: Option<Trip>,
    /// Until something is measured.
    window_first: u64,
}

/// Requests that found the link idle, averaged so that the last few count.
#[derive(Debug, Clone, Copy)]
struct Trip {
    took_ns: u64,
    bytes: u64,
    noted_at: Duration,
}

/// A request under way; hand it back to [`Link::done`] exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    bytes: u64,
    at: Duration,
    delivered: u64,
    alone: bool,
    ahead: bool,
}

impl Sent {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Link {
    pub(super) fn new(window_first: u64) -> Self {
        Self { delivered: 0, in_flight: 0, rate: Lately::default(), trip: None, window_first }
    }

    /// Bytes on their way, of reads and fetches together.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A request for `bytes` leaves now: one that fetches `ahead`, or a read's own.
    pub(super) fn send(&mut self, bytes: u64, ahead: bool, now: Duration) -> Sent {
        let sent = Sent { bytes, at: now, delivered: self.delivered, alone: self.in_flight == 0, ahead };
        self.in_flight = self.in_flight.saturating_add(bytes);
        sent
    }

    /// It is over; `arrived` unless it failed or was given up.
    pub(super) fn done(&mut self, sent: Sent, arrived: bool, now: Duration) {
        self.in_flight = self.in_flight.saturating_sub(sent.bytes);
        if !arrived || sent.bytes == 0 {
            return;
        }
        self.delivered = self.delivered.wrapping_add(sent.bytes);
        let took = now.saturating_sub(sent.at);
        let rate = u128::from(self.delivered.wrapping_sub(sent.delivered)) * 1_000_000_000 / took.as_nanos().max(1);
        self.rate.note(u64::try_from(rate).unwrap_or(u64::MAX), sent.ahead, u64::max);
        if sent.alone {
            self.note_trip(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), sent.bytes, now);
        }
    }

    /// Bytes a second.
    pub(super) fn bandwidth(&self) -> Option<u64> {
        self.rate.best(u64::max)
    }

    fn note_trip(&mut self, took_ns: u64, bytes: u64, now: Duration) {
        let average = |old: u64, new: u64| old - old / 8 + new / 8;
        self.trip = Some(match self.trip {
            None => Trip { took_ns, bytes, noted_at: now },
            Some(old) => {
                Trip { took_ns: average(old.took_ns, took_ns), bytes: average(old.bytes, bytes), noted_at: now }
            }
        });
    }

    /// Whether a request that would otherwise not be accounted for should be, to learn the round trip from.
    pub(super) fn wants_sample(&self, now: Duration) -> bool {
        self.in_flight == 0 && self.trip.is_none_or(|trip| now.saturating_sub(trip.noted_at) >= SAMPLE_EVERY)
    }

    /// What a request takes on an idle link, without the time its bytes take.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let trip = self.trip?;
        let transfer = u128::from(trip.bytes) * 1_000_000_000 / u128::from(self.bandwidth()?.max(1));
        // A bandwidth that is believed to be lower than it is would make the trip short, and the window too small to
        // find out: it may take off a quarter only.
        let transfer = u64::try_from(transfer).unwrap_or(u64::MAX).min(trip.took_ns / 4);
        Some(Duration::from_nanos(trip.took_ns - transfer))
    }

    /// How many bytes may be on their way, and how many one stream may want ready: twice the bandwidth-delay
    /// product. Once would do if it were known; twice lets the estimate rise where it is itself what limits it.
    pub(super) fn window(&self) -> u64 {
        match (self.bandwidth(), self.round_trip()) {
            (Some(bandwidth), Some(trip)) => bytes_in(bandwidth, 2 * trip + TURNAROUND).max(WINDOW_MIN),
            _ => self.window_first.max(WINDOW_MIN),
        }
    }

    /// Whether records of `len` bytes every `step` are better had by fetching everything between them too:
    /// whether the gap takes less time to carry than another request costs.
    pub(super) fn gap_is_cheap(&self, step: u64, len: u64) -> bool {
        // Lone reads say nothing of the bandwidth, and where there is a choice there have been four of them.
        let bandwidth = self.bandwidth().filter(|_| self.rate.is_settled()).unwrap_or(BANDWIDTH_UNKNOWN);
        let trip = self.round_trip().unwrap_or(Duration::from_micros(500));
        step.saturating_sub(len) <= bytes_in(bandwidth, (trip / DEPTH).max(REQUEST_COST))
    }
}

fn bytes_in(bandwidth: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bandwidth) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}
