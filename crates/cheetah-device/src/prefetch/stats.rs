//! What the layer has done so far, for people to look at.

use super::cursor::Pattern;

/// Counters and gauges of a [`Prefetch`](super::Prefetch). Counters only grow; sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefetchStats {
    /// Reads answered from memory alone.
    pub hits: u64,
    /// Reads for which at least one byte was asked of the device.
    pub misses: u64,
    /// Reads that waited for a fetch already on its way.
    pub waits: u64,
    /// Fetches that failed. Nobody but this counter is told: the reader asks again by itself.
    pub failures: u64,
    /// Bytes fetched ahead.
    pub prefetched_bytes: u64,
    /// Of those, bytes that were read.
    pub used_bytes: u64,
    /// Of those, bytes that were dropped, or overwritten, before anyone read them.
    pub unused_bytes: u64,
    /// Bytes held now.
    pub held_bytes: u64,
    /// Bytes of fetches on their way now.
    pub in_flight_bytes: u64,
    /// The bandwidth of the device as measured, in bytes a second; 0 when nothing has been measured.
    pub bandwidth: u64,
    /// The round trip to the device as measured, in microseconds; 0 when nothing has been measured.
    pub round_trip_us: u64,
    /// The streams being followed, most recently used first.
    pub streams: Vec<StreamStats>,
}

/// One stream of reads that is being followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStats {
    /// What kind of stream.
    pub pattern: Pattern,
    /// Where its reader is.
    pub position: u64,
    /// How many bytes are kept ready, or on their way, ahead of it.
    pub window_bytes: u64,
}
