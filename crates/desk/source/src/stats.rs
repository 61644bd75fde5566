//! Counters of an open source.

use cheetah_device::cache::CacheStats;
use cheetah_device::prefetch::PrefetchStats;

/// Counters of an open source and of the layers above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads of the source itself, below all layers. `None` for a drive, which has many sources.
    pub source: Option<SourceStats>,
    /// Prefetching, if enabled.
    pub prefetch: Option<PrefetchStats>,
    /// The cache of the link, if enabled.
    pub cache: Option<CacheStats>,
    /// The number of files known to foresight, if enabled.
    pub files: Option<u64>,
}

/// Reads of a source, failed ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Reads.
    pub requests: u64,
    /// Their bytes, before compression on the link.
    pub bytes: u64,
}
