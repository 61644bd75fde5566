//! The number of bytes the prefetcher keeps in flight on the link to the device.

use std::time::Duration;

use super::MIB;
use crate::link_estimate::{LinkEstimator, LinkModel, TrackedRequest};

/// The bandwidth assumed until the link has been saturated, in bytes a second: that of gigabit Ethernet.
const BANDWIDTH_UNKNOWN: u64 = 100 * MIB;
/// The round trip assumed until one has been measured.
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_micros(500);
/// The smallest window: with less, even on a short slow link, requests would be too small to be worth sending.
const WINDOW_BYTES_MIN: u64 = 256 * 1024;
/// The time both ends spend on one more request of any length.
const REQUEST_COST: Duration = Duration::from_micros(10);
/// Small requests that may usefully be in flight at once.
const QUEUE_DEPTH: u32 = 64;
/// How often the round trip is measured while only reads that belong to no stream cross the link.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The window of the link, from an estimate fed by every request of the layer.
pub(super) struct LinkWindow {
    estimate: LinkEstimator,
    /// The window until something has been measured.
    bytes_first: u64,
}

impl LinkWindow {
    pub(super) fn new(bytes_first: u64) -> Self {
        Self { estimate: LinkEstimator::default(), bytes_first }
    }

    /// Returns the number of bytes in flight, of reads and fetches together.
    pub(super) fn in_flight(&self) -> u64 {
        self.estimate.in_flight()
    }

    /// Notes that a request for `bytes` leaves.
    pub(super) fn sent(&mut self, bytes: u64, now: Duration) -> TrackedRequest {
        self.estimate.sent(bytes, now)
    }

    /// Notes that a request is over; `arrived` unless it failed, was cancelled, or did not cross the link.
    pub(super) fn finished(&mut self, request: TrackedRequest, arrived: bool, now: Duration) {
        self.estimate.finished(request, arrived, now);
    }

    /// Returns the estimate, with the average latency of an idle link as the round trip: read-ahead has to hide that of
    /// a disk too. `None` before the first request has arrived.
    pub(super) fn model(&self) -> Option<LinkModel> {
        let round_trip = self.estimate.idle_latency()?;
        Some(LinkModel { round_trip, ..self.estimate.model()? })
    }

    /// Whether to track a read that belongs to no stream, to measure the round trip.
    pub(super) fn wants_sample(&self, now: Duration) -> bool {
        self.estimate.wants_round_trip(SAMPLE_EVERY, now)
    }

    /// Whether fetches are to wait until the link is idle, so that the next one measures the round trip.
    pub(super) fn must_drain(&self, now: Duration) -> bool {
        self.estimate.must_drain(now)
    }

    /// Returns the number of bytes that may be in flight, which is also what one stream may keep ready.
    pub(super) fn bytes(&self) -> u64 {
        self.model().map_or(self.bytes_first, LinkModel::window).max(WINDOW_BYTES_MIN)
    }

    /// Whether records of `len` bytes every `step` are better fetched together with the gaps between them: whether a
    /// gap takes the link less time than another request.
    pub(super) fn gap_is_cheap(&self, step: u64, len: u64) -> bool {
        let measured = self.model();
        let link = LinkModel {
            bandwidth: measured
                .filter(|_| self.estimate.has_been_saturated())
                .map_or(BANDWIDTH_UNKNOWN, |m| m.bandwidth),
            round_trip: measured.map_or(ROUND_TRIP_UNKNOWN, |m| m.round_trip),
        };
        step.saturating_sub(len) <= link.bytes_in((link.round_trip / QUEUE_DEPTH).max(REQUEST_COST))
    }
}
