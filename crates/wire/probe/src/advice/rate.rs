//! The rate of content to expect.

use std::net::IpAddr;

use crate::path::{Capacity, FarEnd, PathReport};

use super::reason::Reason;

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
    /// The reason.
    pub why: Reason,
}

/// Returns the rate to expect: TCP's own throughput from the host, else the available bandwidth, else the capacity.
pub(super) fn expected(report: &PathReport) -> Option<ExpectedRate> {
    let far = report.far.as_ref();
    let share = content_share(report);
    let new = |bits_per_s: f64, at_least, why: Reason| {
        (bits_per_s.is_finite() && bits_per_s > 0.0).then_some(ExpectedRate { bits_per_s, at_least, why })
    };
    let bulk = || {
        let bits = tcp_from(report)?;
        new(bits, false, Reason::Received(bits))
    };
    let left = || {
        // The search ran below the capacity, so a doubtful capacity makes this figure doubtful too.
        let left = report.available.filter(|_| report.capacity.is_none() || sure(report).is_some())?.bits_per_s;
        let bits = sure(report).map_or(left, |capacity| left.min(capacity.bits_per_s));
        let content = bits * share;
        new(content, false, Reason::Available { bits_per_s: bits, content_bits_per_s: content })
    };
    let back = || {
        let (bits, at_least) = (far?.from_bits_per_s?, far?.from_at_least);
        new(bits * share, at_least, Reason::LinkBack { bits_per_s: bits, at_least })
    };
    let there = || {
        let capacity = sure(report)?;
        let (bits_per_s, at_least) = (capacity.bits_per_s, capacity.at_least);
        new(bits_per_s * share, at_least, Reason::Link { bits_per_s, at_least })
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
