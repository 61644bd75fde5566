//! How to use the link to a source that is behind one.

use cheetah_image::OpenOptions;
use cheetah_nbd::{Method, Packing};

/// How to use a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkUse {
    /// Connections to an NBD server, where it allows several: 1 to 16.
    pub connections: usize,
    /// How an agent is asked to pack what it sends. Other servers are not asked.
    pub packing: Method,
    /// Bytes to have on their way until it has been measured how many keep the link busy; as usual if `None`.
    pub window_bytes_first: Option<u64>,
    /// Bytes one reader is read ahead at most; as usual if `None`.
    pub prefetch_bytes_max: Option<u64>,
}

impl Default for LinkUse {
    /// As usual: as many connections as any source has, packed as the agent sees fit.
    fn default() -> Self {
        let connections = OpenOptions::default().connections;
        Self { connections, packing: Method::Auto, window_bytes_first: None, prefetch_bytes_max: None }
    }
}

impl LinkUse {
    pub(crate) fn packing(self) -> Packing {
        Packing::Wanted(self.packing)
    }
}
