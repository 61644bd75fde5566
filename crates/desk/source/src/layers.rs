//! The layers above a remote source: cache, prefetch and foresight.

use std::sync::Arc;

use cheetah_device::cache::{Cache, CacheConfig};
use cheetah_device::prefetch::{Prefetch, PrefetchConfig};
use cheetah_device::{DynDevice, Size};
use cheetah_volume::foresight::{Foresight, OpenedVolumes, Pieces};

use crate::access::Access;
use crate::stack::VolumeStack;
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
    /// Puts a cache and prefetching above the remote `source`, as `access` asks for.
    pub(crate) fn over(source: DynDevice, access: &Access) -> Result<(DynDevice, Self)> {
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
        Ok((device, layers))
    }

    /// Puts foresight above `device`, the top of these layers, if `access` asks for it: where it sees tools' reads and no
    /// prefetching. Sectors have `sector_bytes`, if known. Its surveys see the opened volumes decrypted, and the volumes that lie in the
    /// source as a list of pieces.
    pub(crate) fn foresee_over(
        &mut self,
        device: DynDevice,
        access: &Access,
        sector_bytes: Option<u32>,
        stack: &Arc<VolumeStack>,
    ) -> DynDevice {
        let (Some(option), Some(cache), true) = (&access.cache, &self.cache, access.foresight) else { return device };
        let volumes: Vec<_> = stack.pieces(device.geometry().size).map(Pieces::new).collect();
        let stack = Arc::clone(stack);
        // What could not be shown over the source was not found in it either.
        let over = Arc::new(move |below: DynDevice| stack.in_place(DynDevice::clone(&below)).unwrap_or(below));
        let opened = (!volumes.is_empty()).then_some(OpenedVolumes { volumes, over });
        let foresight = Foresight::new(device, Arc::clone(cache), option.size.0, sector_bytes, opened);
        self.foresight = Some(foresight.clone());
        foresight
    }

    /// Whether foresight is among them.
    pub(crate) fn foresee(&self) -> bool {
        self.foresight.is_some()
    }

    /// Waits until foresight, if it is among them, knows the metadata of the source.
    pub(crate) fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let settled = self.foresight.as_ref().map(|foresight| foresight.settled());
        async move {
            if let Some(settled) = settled {
                settled.await;
            }
        }
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
