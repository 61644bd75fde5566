//! The number of bytes in flight up to which hints are fetched.

use std::time::Duration;

use super::{FETCH_BYTES, FETCH_BYTES_FIRST};
use crate::link_estimate::{LinkEstimator, LinkModel, TrackedRequest};

/// Until the link has delivered this much, little is known of it, and [`START_BYTES`] may be in flight.
const START_DELIVERED: u64 = 4 << 20;
const START_BYTES: u64 = 1 << 20;
/// Bounds of the window.
const BYTES_MIN: u64 = 256 << 10;
const BYTES_MAX: u64 = 32 << 20;

/// The window for hints, from an estimate fed by every request of the layer.
#[derive(Default)]
pub(super) struct HintWindow {
    estimate: LinkEstimator,
}

impl HintWindow {
    /// Notes that a request for `bytes` leaves.
    pub(super) fn sent(&mut self, bytes: u64, now: Duration) -> TrackedRequest {
        self.estimate.sent(bytes, now)
    }

    /// Notes that a request is over; `arrived` unless it failed or was cancelled.
    pub(super) fn finished(&mut self, request: TrackedRequest, arrived: bool, now: Duration) {
        self.estimate.finished(request, arrived, now);
    }

    /// Returns the number of bytes in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.estimate.in_flight()
    }

    /// Returns the number of bytes that may be in flight before hints have to wait.
    pub(super) fn bytes(&self, now: Duration) -> u64 {
        if self.estimate.must_drain(now) {
            return 0;
        }
        let least = if self.is_starting() { START_BYTES } else { BYTES_MIN };
        self.model().map_or(least, |link| link.window().clamp(least, BYTES_MAX))
    }

    /// Returns the largest request for a hint.
    pub(super) fn fetch_bytes(&self) -> u64 {
        if self.is_starting() { FETCH_BYTES_FIRST } else { FETCH_BYTES }
    }

    /// Returns the estimate; `None` before the first request has arrived.
    pub(super) fn model(&self) -> Option<LinkModel> {
        self.estimate.model()
    }

    fn is_starting(&self) -> bool {
        self.estimate.delivered() < START_DELIVERED
    }
}
