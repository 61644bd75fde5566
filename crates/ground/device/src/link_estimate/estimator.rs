//! The estimator: requests in, a [`LinkModel`] out. It reads no clock.

use std::time::Duration;

use super::LinkModel;
use super::filter::WindowedFilter;

/// Samples of the delivery rate in a window.
const RATE_WINDOW_SAMPLES: u32 = 64;
/// The length of a window of round-trip times, and the longest time between two moments at which the link runs idle.
const ROUND_TRIP_WINDOW: Duration = Duration::from_secs(10);
/// A link with no more than this in flight counts as idle.
const IDLE_BYTES_MAX: u64 = 16 << 10;

/// Estimates the bandwidth and the round-trip time of a link; see the [module](super).
#[derive(Debug)]
pub struct LinkEstimator {
    in_flight: u64,
    delivered: u64,
    rate: WindowedFilter<u64>,
    /// Samples that aged the current window of `rate`.
    rate_samples: u32,
    /// Whether a request has left while the link was saturated.
    saturated: bool,
    round_trip: WindowedFilter<Duration>,
    round_trip_window_began: Duration,
    /// When a request last found the link idle.
    idle_at: Duration,
    /// The average latency of requests that found the link idle, without the transfer of their bytes.
    idle_latency: Option<Duration>,
    /// The latency of the request that finished last.
    latency: Duration,
}

/// A request in flight. Pass it to [`LinkEstimator::finished`] exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedRequest {
    bytes: u64,
    sent_at: Duration,
    /// Bytes delivered when it left.
    delivered: u64,
    /// If it found the link idle, the time since the previous request that did.
    idle: Option<Duration>,
    /// Whether the link was saturated when it left, by the estimate at that time.
    saturated: bool,
}

impl TrackedRequest {
    /// Returns the length of the request.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Default for LinkEstimator {
    fn default() -> Self {
        Self {
            in_flight: 0,
            delivered: 0,
            rate: WindowedFilter::new(u64::max),
            rate_samples: 0,
            saturated: false,
            round_trip: WindowedFilter::new(Duration::min),
            round_trip_window_began: Duration::ZERO,
            idle_at: Duration::ZERO,
            idle_latency: None,
            latency: Duration::ZERO,
        }
    }
}

impl LinkEstimator {
    /// Notes that a request for `bytes` leaves.
    pub fn sent(&mut self, bytes: u64, now: Duration) -> TrackedRequest {
        let idle = (self.in_flight <= IDLE_BYTES_MAX).then(|| now.saturating_sub(self.idle_at));
        if idle.is_some() && bytes > 0 {
            self.idle_at = now;
        }
        self.in_flight = self.in_flight.saturating_add(bytes);
        let product = self.model().unwrap_or_default().bandwidth_delay_product();
        let saturated = idle.is_none() && self.in_flight.saturating_mul(2) >= product;
        TrackedRequest { bytes, sent_at: now, delivered: self.delivered, idle, saturated }
    }

    /// Notes that a request is over; `arrived` unless it failed, was cancelled, or did not cross the link.
    pub fn finished(&mut self, request: TrackedRequest, arrived: bool, now: Duration) {
        debug_assert!(self.in_flight >= request.bytes, "a request finished twice");
        self.in_flight = self.in_flight.saturating_sub(request.bytes);
        if !arrived || request.bytes == 0 {
            return;
        }
        self.delivered = self.delivered.wrapping_add(request.bytes);
        self.latency = now.saturating_sub(request.sent_at);
        self.add_rate(self.delivered.wrapping_sub(request.delivered), request.saturated);
        self.add_round_trip(request.idle.is_some(), now);
        if let Some(since) = request.idle {
            self.add_idle_latency(request.bytes, since);
        }
    }

    fn add_rate(&mut self, delivered: u64, saturated: bool) {
        if saturated && self.rate_samples == RATE_WINDOW_SAMPLES {
            self.rate.start_window();
            self.rate_samples = 0;
        }
        self.rate_samples += u32::from(saturated);
        self.saturated |= saturated;
        let rate = u128::from(delivered) * 1_000_000_000 / self.latency.as_nanos().max(1);
        self.rate.add(u64::try_from(rate).unwrap_or(u64::MAX));
    }

    fn add_round_trip(&mut self, idle: bool, now: Duration) {
        let better = self.round_trip.best().is_none_or(|best| self.latency < best);
        if idle && now.saturating_sub(self.round_trip_window_began) >= ROUND_TRIP_WINDOW {
            self.round_trip.start_window();
            self.round_trip_window_began = now;
        }
        if idle || better {
            self.round_trip.add(self.latency);
        }
    }

    fn add_idle_latency(&mut self, bytes: u64, since: Duration) {
        let bandwidth = self.rate.best().unwrap_or(u64::MAX).max(1);
        let transfer_ns = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth);
        // An underestimated bandwidth would make the latency too short, so no more than a quarter is subtracted.
        let transfer = Duration::from_nanos(u64::try_from(transfer_ns).unwrap_or(u64::MAX)).min(self.latency / 4);
        let sample = self.latency - transfer;
        // An outdated average gets less weight.
        let weight = if since >= ROUND_TRIP_WINDOW { 2 } else { 8 };
        self.idle_latency = Some(self.idle_latency.map_or(sample, |old| old - old / weight + sample / weight));
    }

    /// Returns the average latency of requests that found the link idle, without the transfer of their bytes. It is
    /// longer than the round trip where a source takes a varying time to answer, as disks do.
    pub fn idle_latency(&self) -> Option<Duration> {
        self.idle_latency
    }

    /// Returns the number of bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the number of bytes delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the estimate; `None` before the first request has arrived.
    pub fn model(&self) -> Option<LinkModel> {
        Some(LinkModel { bandwidth: self.rate.best()?, round_trip: self.round_trip.best()? })
    }

    /// Whether the bandwidth has been measured with the link saturated. Until then it may be far too low.
    pub fn has_been_saturated(&self) -> bool {
        self.saturated
    }

    /// Whether to send nothing that can wait until the link is idle, because the round trip was last measured too long
    /// ago. Gives up after twice the latency of a request, and asks again a window later: readers may keep the link
    /// busy.
    pub fn must_drain(&self, now: Duration) -> bool {
        let since = now.saturating_sub(self.idle_at).as_nanos();
        let window = ROUND_TRIP_WINDOW.as_nanos();
        let patience = (2 * self.latency.as_nanos()).min(window / 2);
        self.in_flight > IDLE_BYTES_MAX && since >= window && since % window <= patience
    }

    /// Whether the link is idle, and no request has measured its round trip for `every`.
    pub fn wants_round_trip(&self, every: Duration, now: Duration) -> bool {
        self.in_flight == 0 && (self.model().is_none() || now.saturating_sub(self.idle_at) >= every)
    }
}
