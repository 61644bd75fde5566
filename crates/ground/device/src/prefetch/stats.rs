//! Counters of the prefetcher.

use super::pattern::Pattern;

/// Counters and gauges of a [`Prefetch`](super::Prefetch). Counters only grow; sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefetchStats {
    /// Reads answered from memory alone.
    pub hits: u64,
    /// Reads for which at least one byte was requested from the device.
    pub misses: u64,
    /// Reads that waited for a fetch in flight.
    pub waits: u64,
    /// Fetches that failed. They are not reported otherwise: a reader requests the range itself.
    pub failures: u64,
    /// Bytes fetched ahead.
    pub prefetched_bytes: u64,
    /// Of those, bytes read since.
    pub used_bytes: u64,
    /// Of those, bytes dropped or overwritten before they were read.
    pub unused_bytes: u64,
    /// Bytes held now.
    pub held_bytes: u64,
    /// Bytes of fetches in flight now.
    pub in_flight_bytes: u64,
    /// The bandwidth of the device as measured, in bytes a second; 0 before that.
    pub bandwidth: u64,
    /// The round trip to the device as measured, in microseconds; 0 before that.
    pub round_trip_us: u64,
    /// The streams being followed, most recently used first.
    pub streams: Vec<StreamStats>,
}

/// A stream that is being followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStats {
    /// Its pattern.
    pub pattern: Pattern,
    /// The position of its reader.
    pub position: u64,
    /// The bytes kept ready, or in flight, ahead of the reader.
    pub window_bytes: u64,
}
