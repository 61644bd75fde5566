//! The settings that keep a link busy.

use std::time::Duration;

use cheetah_device::link_estimate::{LinkModel, TURNAROUND};
use serde::{Deserialize, Serialize};

use crate::path::PathReport;

use super::packing::CompressionChoice;
use super::rate;
use super::reason::Reason;

/// The most connections advised: more give one client an unfair share, and do not help an agent.
pub const CONNECTIONS_MAX: u32 = 8;
/// The least window in bytes: with less, requests would be too small, even on a short slow link.
pub const WINDOW_BYTES_MIN: u64 = 256 << 10;
/// The largest window, in bytes.
pub const WINDOW_BYTES_MAX: u64 = 64 << 20;
/// The most prefetch for one reader, in bytes.
pub const PREFETCH_BYTES_MAX: u64 = 128 << 20;

/// The round trip to assume if none is known: that of a local network, in microseconds.
const RTT_UNKNOWN_US: f64 = 500.0;
/// The window of one connection, in bytes: the kernel's default limit of a receive buffer is 6 MiB (`tcp_rmem`), of
/// which half is assumed to be window.
const CONNECTION_BYTES: f64 = 3.0 * 1024.0 * 1024.0;
/// Mathis, Semke, Mahdavi and Ott, *The macroscopic behavior of the TCP congestion avoidance algorithm* (1997): the
/// throughput of a connection is at most segment ÷ round trip × this ÷ √loss.
const MATHIS: f64 = 1.22;
/// Fewer lost probes are ignored: one may be chance.
const LOST_MIN: u32 = 2;
/// One connection below this share of the link's rate leaves room for others.
const FILLED_MIN: f64 = 0.8;

/// The settings of a link that a report on its path advises; absent where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Median round trip, in microseconds, if it is known.
    pub rtt_us: Option<f64>,
    /// The content to expect, in bits a second, if it is known.
    pub rate_bits_per_s: Option<f64>,
    /// Whether that rate is TCP's own throughput from the host. Otherwise it is the rate of links, and the far end may
    /// be limited to less.
    pub from_tcp: bool,
    /// The settings for that rate, if it is known.
    pub flow: Option<Flow>,
    /// Whether an agent may compress: always, unless TCP itself is faster than a processor compresses.
    pub compress: bool,
}

/// The connections, window and prefetch that keep a link busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// TCP connections at once, 1 to [`CONNECTIONS_MAX`].
    pub connections: u32,
    /// Bytes of requests in flight, [`WINDOW_BYTES_MIN`] to [`WINDOW_BYTES_MAX`].
    pub window_bytes: u64,
    /// The most bytes to prefetch for one reader, at least `window_bytes`, to [`PREFETCH_BYTES_MAX`].
    pub prefetch_bytes: u64,
}

impl Tuning {
    /// Derives the settings from a report.
    #[must_use]
    pub fn of(report: &PathReport) -> Self {
        let rate = rate::expected(report).map(|rate| rate.bits_per_s);
        Self {
            rtt_us: trip_us(report),
            rate_bits_per_s: rate,
            from_tcp: rate::tcp_from(report).is_some(),
            flow: rate.map(|rate| flow(report, rate).0),
            compress: rate::tcp_from(report).is_none_or(|rate| CompressionChoice::best(rate, false).compress),
        }
    }
}

/// Returns the settings for a rate in bits of content a second, and the reasons.
pub(super) fn flow(report: &PathReport, rate: f64) -> (Flow, Vec<Reason>) {
    let rtt_us = trip_us(report).unwrap_or(RTT_UNKNOWN_US);
    let rtt_s = rtt_us / 1e6;
    let (connections, mut why) = connections(report, rate, rtt_s);
    // With several connections, expect the rate of the links if one connection carried less.
    let filled = rate.max(if connections > 1 { rate::carried(report).unwrap_or(0.0) } else { 0.0 });
    // Casts of floats saturate, and a round trip is finite and above zero.
    let round_trip = Duration::try_from_secs_f64(rtt_s).unwrap_or(Duration::MAX);
    let link = LinkModel { bandwidth: (filled / 8.0) as u64, round_trip };
    let busy_bytes = link.bytes_in(round_trip.saturating_add(TURNAROUND));
    let window_bytes = whole_mib(busy_bytes.saturating_mul(2)).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    let prefetch_bytes = (2 * window_bytes).min(PREFETCH_BYTES_MAX);
    why.push(Reason::Busy {
        product_kib: link.bandwidth_delay_product() as f64 / 1024.0,
        rtt_ms: rtt_us / 1e3,
        disk_ms: TURNAROUND.as_secs_f64() * 1e3,
    });
    (Flow { connections, window_bytes, prefetch_bytes }, why)
}

/// Returns the median round trip, in microseconds, if it is valid.
fn trip_us(report: &PathReport) -> Option<f64> {
    report.round_trip.map(|trip| trip.median_us).filter(|us| us.is_finite() && *us > 0.0)
}

/// Returns the number of connections, and the reason if it is more than one.
fn connections(report: &PathReport, rate: f64, rtt_s: f64) -> (u32, Vec<Reason>) {
    let target = rate.max(rate::carried(report).unwrap_or(0.0));
    let mut most = (1, None);
    let mut want = |rate_each: f64, why: Reason| {
        let wanted = target / rate_each;
        // A float that is too large, or not a number, becomes the limit or none.
        let wanted = if wanted.is_finite() { (wanted.ceil() as u32).clamp(1, CONNECTIONS_MAX) } else { 1 };
        if wanted > most.0 {
            most = (wanted, Some(why));
        }
    };
    let bulk = report.far.as_ref().and_then(|far| far.tcp_from_bits_per_s);
    if let Some(one) = bulk.filter(|one| *one < FILLED_MIN * target) {
        want(one, Reason::NotFilled);
    }
    let lost = report.round_trip.filter(|trip| trip.sent.saturating_sub(trip.answered) >= LOST_MIN && trip.loss < 1.0);
    if let Some(loss) = lost.map(|trip| trip.loss).filter(|_| bulk.is_none()) {
        let one = rate::segment_bytes(report) * 8.0 / rtt_s * MATHIS / loss.max(1e-9).sqrt();
        want(one, Reason::Losses(loss));
    }
    want(CONNECTION_BYTES * 8.0 / rtt_s, Reason::SmallWindow);
    (most.0, most.1.into_iter().collect())
}

/// Rounds up to whole MiB from 1 MiB on, or KiB below.
fn whole_mib(bytes: u64) -> u64 {
    let unit = if bytes >= 1 << 20 { 1 << 20 } else { 1 << 10 };
    bytes.div_ceil(unit).saturating_mul(unit)
}
