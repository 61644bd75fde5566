//! Waiting for nodes that join by themselves (`cheetah node --join`).

use std::net::SocketAddr;

use crate::error::{Error, Result};
use crate::find::Found;

/// A listener that nodes join, in the order in which they do.
pub struct Gather {
    address: SocketAddr,
}

impl Gather {
    /// Listens on `address` for `wanted` nodes. Anything but loopback is refused unless `insecure`.
    pub async fn listen(address: SocketAddr, wanted: usize, insecure: bool) -> Result<Self> {
        let _ = (address, wanted, insecure);
        Err(Error::failed("not built yet"))
    }

    /// Where it listens: what to pass to `cheetah node --join`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next node to join; `None` when all wanted have.
    pub async fn next(&mut self) -> Option<Found> {
        None
    }
}
