//! The connection to a node, under a writer's lease.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device as _, DynDevice, Io};
use cheetah_nbd::client::Client;
use cheetah_redundancy::MemberLink;
use tokio::time::Instant;

use super::confirmation::Unconfirmed;
use super::shared::Shared;

/// The connection to a node.
pub(crate) struct NodeLink {
    pub client: Arc<Client>,
    pub device: DynDevice,
}

impl MemberLink for NodeLink {
    fn device(&self) -> &DynDevice {
        &self.device
    }

    fn silent_for(&self) -> Option<Duration> {
        self.client.silent_for()
    }
}

/// A node's device under this writer's lease. A request that the node refuses fails as lost, unless another writer has
/// the drive. Once the leases are confirmed, it is sent again.
pub(super) struct Leased {
    pub inner: DynDevice,
    pub shared: Weak<Shared>,
    pub member: usize,
    pub token: Option<String>,
    pub node: Arc<str>,
}

impl Leased {
    async fn explain(&self, range: ByteRange, error: cheetah_device::Error) -> cheetah_device::Error {
        let (cheetah_device::Error::Fenced(why), Some(shared)) = (&error, self.shared.upgrade()) else { return error };
        let now = shared.places.lock()[self.member].token.clone();
        if now.is_none() || now == self.token {
            let asked = Instant::now();
            shared.confirmation.doubt();
            shared.confirmation.confirmed_since(asked).await.ok();
        }
        match shared.fence.is_up() {
            true => cheetah_device::Error::Fenced(format!("{}: {}", self.node, Unconfirmed::Fenced).into()),
            false => cheetah_device::Error::Lost { device: self.node.clone(), range, why: why.clone() },
        }
    }
}

impl Layer for Leased {
    type Below = DynDevice;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Handled;

    fn below(&self) -> &DynDevice {
        &self.inner
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            match self.inner.read(range).await {
                Ok(data) => Ok(data),
                Err(error) => Err(self.explain(range, error).await),
            }
        })
    }

    fn on_write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        Io::later(async move {
            match self.inner.write(offset, data, fua).await {
                Ok(()) => Ok(()),
                Err(error) => Err(self.explain(range, error).await),
            }
        })
    }
}
