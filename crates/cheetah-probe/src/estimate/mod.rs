//! Figures are made of times.
//!
//! [`round_trip`] of when probes were sent and answered; [`capacity`] of how far apart packets sent close together arrive,
//! which [`dispersion`] says; [`available`] of whether delays grow while packets are sent at some rate. All of it is arithmetic.

pub mod available;
pub mod capacity;
pub mod dispersion;
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
    /// When it, or its answer, came: by another clock perhaps, so only differences between such times mean something.
    pub came: Nanos,
    /// Size of the IP packet that was sent.
    pub ip_bytes: u32,
}
