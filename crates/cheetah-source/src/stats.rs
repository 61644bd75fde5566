//! What an open source has done so far.

use cheetah_device::cache::CacheStats;
use cheetah_device::prefetch::PrefetchStats;

/// Counters of an open source and of the layers above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// What was read of the source itself, below all layers. `None` for a drive: its nodes are many sources.
    pub source: Option<SourceStats>,
    /// What was read ahead, where that is done.
    pub prefetch: Option<PrefetchStats>,
    /// What was kept of what crossed the link, where that is done.
    pub cache: Option<CacheStats>,
    /// Files whose content can be foreseen, where that is done.
    pub files: Option<u64>,
}

/// What was read of a source, failed reads included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Reads.
    pub requests: u64,
    /// Their bytes. Fewer cross the link where what is sent is packed.
    pub bytes: u64,
}
