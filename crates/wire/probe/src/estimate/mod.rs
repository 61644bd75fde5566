//! Estimators: pure functions from the times packets left and arrived to figures about the path.
//!
//! [`round_trip`] takes the times of probes and answers; [`capacity`] takes the [`dispersion`] of packets sent back to
//! back, and whether the path delivers them in [`batches`]; [`available`] takes one-way-delay trends at a rate.

pub mod available;
pub mod batches;
pub mod capacity;
pub mod dispersion;
pub mod plan;
pub mod round_trip;
#[cfg(test)]
mod simulation;
pub mod stats;
#[cfg(test)]
mod tests;

use crate::clock::Nanos;

/// A packet that arrived at the far end, or whose answer came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its sequence number.
    pub seq: u32,
    /// When it left.
    pub sent: Nanos,
    /// When the packet, or its answer, arrived. The clock may be another machine's, so only differences of these times
    /// are valid.
    pub came: Nanos,
    /// Size of the IP packet that was sent.
    pub ip_bytes: u32,
}

/// The part of one train that arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrainArrivals {
    /// The number of packets sent.
    pub packets: usize,
    /// The packets that arrived, in order of arrival.
    pub arrivals: Vec<Arrival>,
}
