//! How far apart packets arrive that were sent close together: the time the narrowest link takes for one of them, if
//! nothing came between.

use super::{Arrival, stats};
use crate::frame::ETHERNET_BYTES;

/// What the dispersion of a pair or train says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Rate at which its packets arrived, in bits a second of whole Ethernet frames.
    pub bits_per_s: f64,
    /// Rate at which they were sent; a link faster than that cannot be told.
    pub sent_bits_per_s: f64,
    /// Packets it rests on: 2 for a pair.
    pub packets: u32,
}

/// What a train of `packets` packets says of which these arrived, in the order they came in. Nothing if one was lost, came
/// twice or overtook another, or if most of them came at once: such a train is not to be measured with.
#[must_use]
pub fn train(arrivals: &[Arrival], packets: usize) -> Option<Sample> {
    let (first, rest) = arrivals.split_first()?;
    let last = rest.last().filter(|_| arrivals.len() == packets)?;
    let in_order = arrivals.windows(2).all(|pair| match pair {
        [a, b] => a.seq < b.seq && a.sent <= b.sent && a.came <= b.came,
        _ => false,
    });
    let ns_per_bit = stats::median(&stats::sorted(windows(arrivals)))?;
    let sent_ns = last.sent.0.saturating_sub(first.sent.0).max(1);
    let sample = Sample {
        bits_per_s: 1e9 / ns_per_bit,
        sent_bits_per_s: rest.iter().map(frame_bits).sum::<f64>() * 1e9 / sent_ns as f64,
        packets: u32::try_from(packets).unwrap_or(u32::MAX),
    };
    (in_order && ns_per_bit > 0.0).then_some(sample)
}

/// Nanoseconds a bit over each half of a train: from any packet to the one that is half a train later. The middle of them is
/// off by no more than a timestamp's error over so many packets, and not led astray by one packet that was held up, as the
/// first often is where everything has to wake up.
fn windows(arrivals: &[Arrival]) -> impl Iterator<Item = f64> {
    let lag = (arrivals.len() / 2).max(1);
    // A link takes the time for all but the first between the first and the last.
    arrivals.windows(lag + 1).filter_map(|window| {
        let (first, rest) = window.split_first()?;
        let ns = rest.last()?.came.0.saturating_sub(first.came.0);
        Some(ns as f64 / rest.iter().map(frame_bits).sum::<f64>())
    })
}

fn frame_bits(arrival: &Arrival) -> f64 {
    (f64::from(arrival.ip_bytes) + ETHERNET_BYTES as f64) * 8.0
}

/// What each two neighbours of a train say, in the order they came in; those between which one is missing say nothing.
#[must_use]
pub fn pairs(arrivals: &[Arrival]) -> Vec<Sample> {
    let next_to = |pair: &&[Arrival]| matches!(pair, [a, b] if a.seq.checked_add(1) == Some(b.seq));
    arrivals.windows(2).filter(next_to).filter_map(|pair| train(pair, 2)).collect()
}
