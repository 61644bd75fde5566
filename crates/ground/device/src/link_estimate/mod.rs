//! The bandwidth and the round-trip time of a link, estimated from the requests that cross it, and their product.
//!
//! [`LinkEstimator`] measures; the layers that use it ([prefetch](crate::prefetch), [cache](crate::cache),
//! [copy-on-read](crate::copy_on_read)) turn its [`LinkModel`] into a limit of bytes in flight. The method is that of
//! BBR (Cardwell, Cheng, Gunn, Yeganeh and Jacobson, *BBR: Congestion-Based Congestion Control*, 2016), one level above
//! TCP.
//!
//! # Bandwidth
//!
//! Each request yields a sample of the delivery rate: the bytes delivered by all requests between its start and its
//! end, divided by that time. An unsaturated link underestimates bandwidth, so the filter keeps the maximum of the last
//! 64–128 samples. A request that left while less than half of the bandwidth-delay product was in flight is
//! *application-limited*: its sample can raise the estimate but not age it, so a reader that asks for little at a time
//! does not make the link look slow. A link that has become slower is noticed when it is next filled.
//!
//! # Round-trip time
//!
//! Requests that queue behind others overestimate the round trip, so the filter keeps the minimum of the last 10–20 s.
//! Only a request that found the link idle ages it: queued requests would replace the round trip by the queueing delay,
//! and a window computed from that would lengthen the queue. A link that is kept full is never idle, so every 10 s
//! [`must_drain`](LinkEstimator::must_drain) asks its user to let it run idle once (BBR's ProbeRTT). Without that a
//! window shrinks for good when the delay rises: the same bytes in flight take longer, which looks like a lower
//! bandwidth.
//!
//! A source whose time to answer varies, as that of a disk does, needs more in flight than the minimum suggests:
//! [`idle_latency`](LinkEstimator::idle_latency) is the average instead, of requests that found the link idle.
//!
//! The transfer time of a request's own bytes is not subtracted from the round trip: if the bandwidth is
//! underestimated, that would make the round trip too short, and the window too small to find out.

mod estimator;
mod filter;
#[cfg(test)]
mod simulation;

use std::time::Duration;

pub use self::estimator::{LinkEstimator, TrackedRequest};

/// The time a source and two schedulers take to process a request, which no bandwidth-delay product includes. On a fast
/// network it is most of the latency there is to hide.
pub const TURNAROUND: Duration = Duration::from_millis(2);

/// The bandwidth and the round-trip time of a link. All zero if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkModel {
    /// In bytes a second.
    pub bandwidth: u64,
    /// The latency of a request on an idle link.
    pub round_trip: Duration,
}

impl LinkModel {
    /// Returns the number of bytes the link carries in `time`.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.bandwidth).saturating_mul(time.as_nanos()) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns the bandwidth-delay product, in bytes.
    pub fn bandwidth_delay_product(self) -> u64 {
        self.bytes_in(self.round_trip)
    }

    /// Returns the bytes in flight that keep the link busy although the estimate may be low: twice the bandwidth-delay
    /// product, plus the bytes that arrive during [`TURNAROUND`]. If the product were exact, once would suffice. Twice
    /// lets the estimate rise where the window itself limits it, and delays a demand read by at most one round trip.
    pub fn window(self) -> u64 {
        self.bytes_in(self.round_trip.saturating_mul(2).saturating_add(TURNAROUND))
    }
}
