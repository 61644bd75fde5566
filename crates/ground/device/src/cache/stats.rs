//! Counters of the cache.

use super::Urgency;

/// Counters and gauges of a [`Cache`](super::Cache). Counters only grow; sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads answered from the cache alone.
    pub hits: u64,
    /// Reads for which at least one byte was requested from the device.
    pub misses: u64,
    /// Other reads that waited for a fetch in flight.
    pub waits: u64,
    /// Requests to the device that failed.
    pub failures: u64,
    /// Bytes fetched because a reader waited for them.
    pub demanded_bytes: u64,
    /// Bytes fetched because of hints, by urgency.
    pub hinted: [Hinted; Urgency::COUNT],
    /// Bytes evicted, whether or not they were read.
    pub evicted_bytes: u64,
    /// Bytes that came back different from the cache's file, and were fetched again.
    pub spoilt_bytes: u64,
    /// Bytes held now.
    pub held_bytes: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
    /// The bandwidth of the device as measured, in bytes a second; 0 before that.
    pub bandwidth: u64,
    /// The round trip to the device as measured, in microseconds; 0 before that.
    pub round_trip_us: u64,
}

/// Bytes fetched because of hints of one urgency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hinted {
    /// Bytes fetched.
    pub bytes: u64,
    /// Of those, bytes read since.
    pub used_bytes: u64,
}

impl CacheStats {
    /// Returns the bytes that crossed the link.
    pub fn crossed_bytes(&self) -> u64 {
        self.demanded_bytes + self.hinted.iter().map(|hinted| hinted.bytes).sum::<u64>()
    }

    /// Returns the bytes that crossed the link because of hints, and have not been read.
    pub fn unused_bytes(&self) -> u64 {
        self.hinted.iter().map(|hinted| hinted.bytes.saturating_sub(hinted.used_bytes)).sum()
    }
}
