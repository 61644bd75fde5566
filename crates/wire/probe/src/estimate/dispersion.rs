//! The gaps on arrival of packets sent back to back: the time the narrowest link takes for one packet, if no other
//! packet came between.

use super::{Arrival, TrainArrivals, stats};
use crate::frame::ETHERNET_BYTES;

/// The fewest packets of a train that counts as long.
pub const TRAIN_PACKETS_MIN: usize = 8;

/// The dispersion of a pair or train, as rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Rate at which its packets arrived, in bits a second of whole Ethernet frames.
    pub bits_per_s: f64,
    /// Rate at which they were sent; any faster link gives the same dispersion.
    pub sent_bits_per_s: f64,
    /// Its packets: 2 for a pair.
    pub packets: u32,
}

/// Returns the dispersion of a train of `packets` packets, whose arrivals are in the order they came in. `None` if one
/// was lost, duplicated or reordered, or if most arrived at once.
#[must_use]
pub fn train(arrivals: &[Arrival], packets: usize) -> Option<Sample> {
    if arrivals.len() != packets { None } else { of_run(arrivals) }
}

/// Returns the dispersion of neighbouring packets of a train, if they arrived in order.
#[must_use]
pub fn of_run(arrivals: &[Arrival]) -> Option<Sample> {
    let (first, rest) = arrivals.split_first()?;
    let last = rest.last()?;
    let ns_per_bit = stats::median(&stats::sorted(windows(arrivals)))?;
    let sent_ns = last.sent.0.saturating_sub(first.sent.0).max(1);
    let sample = Sample {
        bits_per_s: 1e9 / ns_per_bit,
        sent_bits_per_s: rest.iter().map(frame_bits).sum::<f64>() * 1e9 / sent_ns as f64,
        packets: u32::try_from(arrivals.len()).unwrap_or(u32::MAX),
    };
    (arrivals.windows(2).all(is_in_order) && ns_per_bit > 0.0).then_some(sample)
}

/// Returns the nanoseconds a bit that the packets of a train take, by linear least squares. Unlike the median in
/// [`of_run`], this averages gaps that are multiples of a clock's tick. The first packet is ignored: it is often
/// delayed while hosts and routers wake up.
#[must_use]
pub fn slope_ns_per_bit(run: &[Arrival]) -> Option<f64> {
    let (_, run) = run.split_first()?;
    let (first, last) = (run.first()?, run.last()?);
    let middle = (run.len() - 1) as f64 / 2.0;
    let weighted = |(place, arrival): (usize, &Arrival)| {
        (place as f64 - middle) * arrival.came.0.saturating_sub(first.came.0) as f64
    };
    let squares = (0..run.len()).map(|place| (place as f64 - middle).powi(2)).sum::<f64>();
    let ns = run.iter().enumerate().map(weighted).sum::<f64>() / squares;
    (ns > 0.0).then(|| ns / frame_bits(last))
}

/// Returns the longest part of a train in which no packet is missing, duplicated or reordered, if it has
/// [`TRAIN_PACKETS_MIN`] packets.
#[must_use]
pub fn longest_run(train: &TrainArrivals) -> Option<&[Arrival]> {
    let runs =
        train.arrivals.chunk_by(|a, b| a.seq.checked_add(1) == Some(b.seq) && a.sent <= b.sent && a.came <= b.came);
    runs.max_by_key(|run| run.len()).filter(|run| run.len() >= TRAIN_PACKETS_MIN)
}

fn is_in_order(pair: &[Arrival]) -> bool {
    matches!(pair, [a, b] if a.seq < b.seq && a.sent <= b.sent && a.came <= b.came)
}

/// Returns nanoseconds a bit from each packet to the one half a train later. Their median spreads the error of a
/// timestamp over half a train, and resists one delayed packet, as the first often is.
fn windows(arrivals: &[Arrival]) -> impl Iterator<Item = f64> {
    let lag = (arrivals.len() / 2).max(1);
    // Between the first arrival and the last, a link transmits all but the first packet.
    arrivals.windows(lag + 1).filter_map(|window| {
        let (first, rest) = window.split_first()?;
        let ns = rest.last()?.came.0.saturating_sub(first.came.0);
        Some(ns as f64 / rest.iter().map(frame_bits).sum::<f64>())
    })
}

/// Bits of the whole Ethernet frame.
pub(super) fn frame_bits(arrival: &Arrival) -> f64 {
    (f64::from(arrival.ip_bytes) + ETHERNET_BYTES as f64) * 8.0
}

/// Returns the dispersion of each two neighbours of a train, in order of arrival.
#[must_use]
pub fn pairs(arrivals: &[Arrival]) -> Vec<Sample> {
    let is_next = |pair: &&[Arrival]| matches!(pair, [a, b] if a.seq.checked_add(1) == Some(b.seq));
    arrivals.windows(2).filter(is_next).filter_map(|pair| train(pair, 2)).collect()
}
