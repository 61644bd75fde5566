//! What the layer has done so far, for people to look at, and for who decides what to fetch next.

use super::Urgency;

/// Counters and gauges of a [`Cache`](super::Cache). Counters only grow; sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads answered from what is kept alone.
    pub hits: u64,
    /// Reads for which at least one byte was asked of the device.
    pub misses: u64,
    /// Other reads that waited for what was on its way already.
    pub waits: u64,
    /// Requests to the device that failed.
    pub failures: u64,
    /// Bytes that came from the device because somebody read them.
    pub demanded_bytes: u64,
    /// Bytes that came from the device before anybody read them.
    pub hinted: [Hinted; Urgency::COUNT],
    /// Bytes dropped to make room, whether or not they were read.
    pub evicted_bytes: u64,
    /// Bytes that came back different from the file they were kept in. They were fetched again.
    pub spoilt_bytes: u64,
    /// Bytes held now.
    pub held_bytes: u64,
    /// Bytes on their way now.
    pub in_flight_bytes: u64,
    /// The bandwidth of the device as measured, in bytes a second; 0 when nothing has been measured.
    pub bandwidth: u64,
    /// The round trip to the device as measured, in microseconds; 0 when nothing has been measured.
    pub round_trip_us: u64,
}

/// What was fetched on hints of one urgency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hinted {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Of those, bytes that were read afterwards.
    pub used_bytes: u64,
}

impl CacheStats {
    /// Bytes that crossed the link, whatever for.
    pub fn crossed_bytes(&self) -> u64 {
        self.demanded_bytes + self.hinted.iter().map(|hinted| hinted.bytes).sum::<u64>()
    }

    /// Bytes that crossed it and that nobody has read yet, or ever did.
    pub fn unused_bytes(&self) -> u64 {
        self.hinted.iter().map(|hinted| hinted.bytes.saturating_sub(hinted.used_bytes)).sum()
    }
}
