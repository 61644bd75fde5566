//! How to use the link to a remote source.

use cheetah_image::OpenOptions;
use cheetah_nbd::{Method, Packing};

/// How to use a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkUse {
    /// Connections to an NBD server, where it allows several: 1 to 16.
    pub connections: usize,
    /// The packing requested from an agent. Other servers are not asked.
    pub packing: Method,
    /// Bytes in flight until the bandwidth-delay product is known; the default if `None`.
    pub window_bytes_first: Option<u64>,
    /// The maximum read-ahead window of a stream; the default if `None`.
    pub prefetch_bytes_max: Option<u64>,
}

impl Default for LinkUse {
    /// The usual number of connections, with the packing chosen by the agent.
    fn default() -> Self {
        Self {
            connections: OpenOptions::CONNECTIONS,
            packing: Method::Auto,
            window_bytes_first: None,
            prefetch_bytes_max: None,
        }
    }
}

impl LinkUse {
    pub(crate) fn packing(self) -> Packing {
        Packing::Wanted(self.packing)
    }
}
