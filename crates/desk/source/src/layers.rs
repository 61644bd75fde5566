//! The layers above a remote source: cache, prefetch and foresight.

use std::sync::Arc;

use cheetah_device::cache::{Cache, CacheConfig};
use cheetah_device::prefetch::{Prefetch, PrefetchConfig};
use cheetah_device::{DynDevice, Size};
use cheetah_volume::foresight::Foresight;

use crate::access::Access;
use crate::stats::Stats;
use cheetah_error::{Error, Result};

/// The layers of a source, kept for their counters.
#[derive(Default)]
pub(crate) struct Layers {
    cache: Option<Arc<Cache>>,
    prefetch: Option<Arc<Prefetch>>,
    foresight: Option<Arc<Foresight>>,
}

impl Layers {
    /// Puts the layers that `access` asks for above the remote `source`, whose sectors have `sector_bytes`, if known.
    pub(crate) fn over(source: DynDevice, access: &Access, sector_bytes: Option<u32>) -> Result<(DynDevice, Self)> {
        let (mut device, mut layers) = (source, Self::default());
        if let Some(option) = &access.cache {
            let (place, budget_bytes) = (option.place.clone(), option.size.0);
            let cache = Cache::new(device, CacheConfig { place, budget_bytes });
            let cache = cache.map_err(Error::device("making the cache of the link"))?;
            device = cache.clone();
            layers.cache = Some(cache);
        }
        if access.prefetch_bytes > 0 {
            let (budget_bytes, earned) = (access.prefetch_bytes, layers.cache.is_some());
            let usual = PrefetchConfig::default();
            let window_bytes_max = access.link.prefetch_bytes_max.unwrap_or(usual.window_bytes_max);
            let window_bytes_first = access.link.window_bytes_first.unwrap_or(usual.window_bytes_first);
            let config = PrefetchConfig { budget_bytes, window_bytes_max, window_bytes_first, earned };
            let prefetch = Prefetch::new(device, config);
            device = prefetch.clone();
            layers.prefetch = Some(prefetch);
        }
        // On top, where it sees tools' reads and no prefetching.
        if let (Some(option), Some(cache), true) = (&access.cache, &layers.cache, access.foresight) {
            let foresight = Foresight::new(device, Arc::clone(cache), option.size.0, sector_bytes);
            device = foresight.clone();
            layers.foresight = Some(foresight);
        }
        Ok((device, layers))
    }

    /// Whether foresight is among them.
    pub(crate) fn foresee(&self) -> bool {
        self.foresight.is_some()
    }

    /// Adds their counters to `stats`.
    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.cache = self.cache.as_ref().map(|cache| cache.stats());
        stats.prefetch = self.prefetch.as_ref().map(|prefetch| prefetch.stats());
        stats.files = self.foresight.as_ref().map(|foresight| foresight.files() as u64);
    }

    /// Logs the statistics of the layers.
    pub(crate) fn log(&self) {
        let Some(cache) = &self.cache else { return };
        let stats = cache.stats();
        tracing::info!(
            "cache: {} crossed the link, of which {} fetched ahead ({} not used); {} of {} reads waited for it",
            Size(stats.crossed_bytes()),
            Size(stats.crossed_bytes() - stats.demanded_bytes),
            Size(stats.unused_bytes()),
            stats.misses + stats.waits,
            stats.hits + stats.misses + stats.waits
        );
    }
}
