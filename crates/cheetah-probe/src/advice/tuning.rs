//! What keeps a link busy.

use serde::{Deserialize, Serialize};

use crate::path::PathReport;

use super::packing::Choice;
use super::rate;

/// The most connections that are advised: more than that help one client to an unfair share, and an agent to none.
pub const CONNECTIONS_MAX: u32 = 8;
/// The least that is under way, in bytes: with less, even on a short slow link, requests would be too small to be worth sending.
pub const WINDOW_BYTES_MIN: u64 = 256 << 10;
/// The most that is under way, in bytes.
pub const WINDOW_BYTES_MAX: u64 = 64 << 20;
/// The most that is read ahead for one reader, in bytes.
pub const PREFETCH_BYTES_MAX: u64 = 128 << 20;

/// Where no rate is known: that of the network most people have, in bits a second.
const RATE_UNKNOWN: f64 = 1e9;
/// Where no round trip is known: that of a local network, in microseconds.
const RTT_UNKNOWN_US: f64 = 500.0;
/// Where no rate is known, a round trip longer than this, in microseconds, is taken to be a link one has to pay for with time.
const NEAR_US: f64 = 2_000.0;
/// The time a disk and two schedulers take to turn a request round, in seconds, which no round trip knows of.
const TURNAROUND_S: f64 = 0.002;
/// What one connection may have under way, in bytes: the kernel's default limit of a receive buffer is 6 MiB (`tcp_rmem`), and
/// half of a buffer is counted on as window.
const CONNECTION_BYTES: f64 = 3.0 * 1024.0 * 1024.0;
/// Mathis, Semke, Mahdavi and Ott, *The macroscopic behavior of the TCP congestion avoidance algorithm* (1997): a connection
/// carries no more than segment ÷ round trip × this ÷ √loss.
const MATHIS: f64 = 1.22;
/// One lost probe may be chance.
const LOST_MIN: u32 = 2;
/// One connection that brings less than this share of what the link carries leaves room for others.
const FILLED_MIN: f64 = 0.8;

/// How to use a link: what `--tune` hands to connections, windows and the prefetcher.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Median round trip, in microseconds.
    pub rtt_us: f64,
    /// Content to expect, in bits a second, if it is known.
    pub rate_bits_per_s: Option<f64>,
    /// TCP connections at once, 1 to [`CONNECTIONS_MAX`].
    pub connections: u32,
    /// Bytes of requests under way at once, [`WINDOW_BYTES_MIN`] to [`WINDOW_BYTES_MAX`].
    pub window_bytes: u64,
    /// Bytes one reader is read ahead at most, at least `window_bytes`, to [`PREFETCH_BYTES_MAX`].
    pub prefetch_bytes: u64,
    /// Whether to compress on the way.
    pub compress: bool,
}

impl Tuning {
    /// What the report says. What it does not say is taken to be as in a local network.
    #[must_use]
    pub fn of(report: &PathReport) -> Self {
        reasoned(report).0
    }
}

/// The tuning, and the reasons, a sentence each.
pub(super) fn reasoned(report: &PathReport) -> (Tuning, Vec<String>) {
    let expected = rate::expected(report).map(|rate| rate.bits_per_s);
    let known_us = report.round_trip.map(|trip| trip.median_us).filter(|us| us.is_finite() && *us > 0.0);
    let rtt_us = known_us.unwrap_or(RTT_UNKNOWN_US);
    let rtt_s = rtt_us / 1e6;
    let (connections, mut why) = connections(report, expected, rtt_s);
    // Several connections are advised where they may bring more than one did.
    let filled =
        expected.unwrap_or(RATE_UNKNOWN).max(if connections > 1 { rate::carried(report).unwrap_or(0.0) } else { 0.0 });
    let way_bytes = filled / 8.0 * rtt_s;
    let busy_bytes = filled / 8.0 * (rtt_s + TURNAROUND_S);
    let window_bytes = whole_mib(2.0 * busy_bytes).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    let prefetch_bytes = (2 * window_bytes).min(PREFETCH_BYTES_MAX);
    why.push(format!(
        "{:.0} KiB fit on the way ({:.2} ms); twice that, and what is asked for in the {:.0} ms a disk takes, keeps it busy.",
        way_bytes / 1024.0,
        rtt_us / 1e3,
        TURNAROUND_S * 1e3
    ));
    let compress = expected.map_or(rtt_us > NEAR_US, |rate| Choice::best(rate).compress);
    (Tuning { rtt_us, rate_bits_per_s: expected, connections, window_bytes, prefetch_bytes, compress }, why)
}

/// How many connections, and why if it is more than one.
fn connections(report: &PathReport, expected: Option<f64>, rtt_s: f64) -> (u32, Vec<String>) {
    let Some(rate) = expected else { return (1, Vec::new()) };
    let target = rate.max(rate::carried(report).unwrap_or(0.0));
    let mut most = (1, None);
    let mut want = |rate_each: f64, why: &dyn Fn(u32) -> String| {
        let wanted = target / rate_each;
        // A float that is too large, or not a number, becomes the limit or none.
        let wanted = if wanted.is_finite() { (wanted.ceil() as u32).clamp(1, CONNECTIONS_MAX) } else { 1 };
        if wanted > most.0 {
            most = (wanted, Some(why(wanted)));
        }
    };
    let bulk = report.far.as_ref().and_then(|far| far.tcp_from_bits_per_s);
    if let Some(one) = bulk.filter(|one| *one < FILLED_MIN * target) {
        want(one, &|_| "One connection did not fill the link; several may bring more than is counted on here.".into());
    }
    let lost = report.round_trip.filter(|trip| trip.sent.saturating_sub(trip.answered) >= LOST_MIN && trip.loss < 1.0);
    if let Some(loss) = lost.map(|trip| trip.loss).filter(|_| bulk.is_none()) {
        let one = rate::segment_bytes(report) * 8.0 / rtt_s * MATHIS / loss.max(1e-9).sqrt();
        want(one, &|_| {
            format!("With {:.1} % of probes lost, one connection may be held back by its losses.", loss * 100.0)
        });
    }
    want(CONNECTION_BYTES * 8.0 / rtt_s, &|_| "One connection's window does not reach across so long a link.".into());
    (most.0, most.1.into_iter().collect())
}

/// The next whole MiB from 1 MiB on, or KiB below: nobody wants to read more digits.
fn whole_mib(bytes: f64) -> u64 {
    let unit = if bytes >= 1048576.0 { 1u64 << 20 } else { 1 << 10 };
    // A cast of a float stops at the largest, and of what is not a number at 0.
    (bytes.min(1e15) as u64).div_ceil(unit) * unit
}
