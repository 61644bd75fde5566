//! The rate of content to expect.

use std::net::IpAddr;

use crate::path::{Capacity, FarEnd, PathReport};
use crate::units::BitRate;

/// The packet size where the MTU is unknown: Ethernet's.
const MTU_BYTES: u32 = 1500;
/// An Ethernet header.
const LINK_BYTES: f64 = 14.0;
/// A TCP header with timestamps (RFC 9293 section 3.1, RFC 7323 section 3.2).
const TCP_BYTES: f64 = 32.0;

/// Advice is based on a capacity only if at least this share of the measurements agrees.
pub const CONFIDENCE_MIN: f64 = 0.5;

/// A rate of content: the payload of TCP.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExpectedRate {
    /// Bits a second, above 0.
    pub bits_per_s: f64,
    /// Whether it is a lower bound.
    pub at_least: bool,
    /// The reason, a sentence.
    pub why: String,
}

/// Returns the rate to expect: TCP's own throughput from the host, else the available bandwidth, else the capacity.
pub(super) fn expected(report: &PathReport) -> Option<ExpectedRate> {
    let far = report.far.as_ref();
    let share = content_share(report);
    let new = |bits_per_s: f64, at_least, why: String| {
        (bits_per_s.is_finite() && bits_per_s > 0.0).then_some(ExpectedRate { bits_per_s, at_least, why })
    };
    let bulk = || {
        let bits = tcp_from(report)?;
        new(bits, false, format!("One TCP connection received {} from there.", BitRate(bits)))
    };
    let left = || {
        // The search ran below the capacity, so a doubtful capacity makes this figure doubtful too.
        let left = report.available.filter(|_| report.capacity.is_none() || sure(report).is_some())?.bits_per_s;
        let bits = sure(report).map_or(left, |capacity| left.min(capacity.bits_per_s));
        let why =
            format!("About {} are available on the path there, {} of content.", BitRate(bits), BitRate(bits * share));
        new(bits * share, false, why)
    };
    let back = || {
        let (bits, at_least) = (far?.from_bits_per_s?, far?.from_at_least);
        let least = if at_least { "at least " } else { "" };
        let why = format!("The narrowest link of the path back carries {least}{}.", BitRate(bits));
        new(bits * share, at_least, why)
    };
    let there = || {
        let capacity = sure(report)?;
        let (bits, least) = (capacity.bits_per_s, if capacity.at_least { "at least " } else { "" });
        let why = format!("The narrowest link carries {least}{}; other traffic is not counted.", BitRate(bits));
        new(bits * share, capacity.at_least, why)
    };
    bulk().or_else(left).or_else(back).or_else(there)
}

/// Returns the capacity, if enough of the measurements agree and most trains left on time.
fn sure(report: &PathReport) -> Option<&Capacity> {
    let trains = report.trains;
    let is_fair = trains.spoiled.saturating_mul(2) <= trains.sent;
    report.capacity.as_ref().filter(|capacity| capacity.confidence >= CONFIDENCE_MIN && is_fair)
}

/// Returns TCP's measured throughput from the host, in bits a second.
pub(super) fn tcp_from(report: &PathReport) -> Option<f64> {
    report.far.as_ref()?.tcp_from_bits_per_s.filter(|bits| bits.is_finite() && *bits > 0.0)
}

/// Returns the content that the links carry for TCP alone, in bits a second.
pub(super) fn carried(report: &PathReport) -> Option<f64> {
    let back = report.far.as_ref().and_then(|far: &FarEnd| far.from_bits_per_s);
    let there = sure(report).map(|capacity| capacity.bits_per_s);
    // Content travels on the path back; the path there is used only if the path back is unknown.
    back.or(there).map(|bits| bits * content_share(report))
}

/// Returns the share of a full frame that is content.
fn content_share(report: &PathReport) -> f64 {
    let ip_bytes = match report.address {
        IpAddr::V4(_) => 20.0,
        IpAddr::V6(_) => 40.0,
    };
    let mtu = f64::from(report.mtu.map_or(MTU_BYTES, |mtu| mtu.bytes).clamp(576, 65_535));
    (mtu - ip_bytes - TCP_BYTES) / (mtu + LINK_BYTES)
}

/// Returns the bytes of content in a full packet.
pub(super) fn segment_bytes(report: &PathReport) -> f64 {
    content_share(report) * (f64::from(report.mtu.map_or(MTU_BYTES, |mtu| mtu.bytes).clamp(576, 65_535)) + LINK_BYTES)
}
