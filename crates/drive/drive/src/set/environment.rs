//! What the recovery engine needs from outside: a place for its maps, and connections to nodes that come back. The maps are
//! stored by `store`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cheetah_error::{Error, Result};
use cheetah_redundancy::engine::Epoch;
use cheetah_redundancy::{DynLink, Map, NotReached, NotStored};
use futures::future::BoxFuture;

use super::divergence::Divergence;
use super::ended::has_ended;
use super::map::DriveMap;
use super::shared::Shared;
use crate::file::SetNode;
use crate::timing::ENDED_TIMEOUT;

/// How long a node may take to return its count of bytes read: resynchronization waits for it.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// The environment of the engine.
pub(super) struct Keeper(pub Arc<Shared>);

impl cheetah_redundancy::Environment for Keeper {
    fn store(&self, map: Map) -> BoxFuture<'_, std::result::Result<(), NotStored>> {
        Box::pin(self.0.store(map))
    }

    fn reconnect(&self, member: usize) -> BoxFuture<'_, std::result::Result<DynLink, NotReached>> {
        Box::pin(async move {
            let node = self.0.node(member);
            if node.http.is_none() {
                return Err(NotReached::Unknown);
            }
            self.0.acquire(member).await.map_err(|error| NotReached::NoLease(Arc::new(error)))?;
            self.0.refuse_diverged(&node).await.map_err(|error| NotReached::Diverged(Arc::new(error)))?;
            self.0.connect(member).await.map_err(|error| NotReached::Unreachable(Arc::new(error)))
        })
    }

    fn read_bytes(&self, member: usize) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async move {
            let export = self.0.exports.of(&self.0.node(member), &self.0.session().within(BUSY_TIMEOUT))?;
            let status = export.control.status().await.ok()?;
            status.exports.into_iter().find(|found| found.name == export.name).map(|own| own.read_bytes)
        })
    }

    fn moved(&self, member: usize, epoch: Epoch) {
        self.0.moved(member, epoch);
    }

    fn is_gone(&self, member: usize) -> BoxFuture<'_, bool> {
        Box::pin(async move { has_ended(&self.0.node(member), &self.0.session().within(ENDED_TIMEOUT)).await })
    }
}

impl Shared {
    /// Fails if another writer wrote to a node that comes back, apart from this one: resynchronizing it would lose those
    /// writes.
    pub async fn refuse_diverged(&self, node: &SetNode) -> Result<()> {
        if self.overwrites.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(stored) = self.stored_map(node).await? else { return Ok(()) };
        let set = self.set();
        let Some(own) = self.own_map() else { return Ok(()) };
        match Divergence::among(&own, [&stored]) {
            None => Ok(()),
            Some(divergence) => {
                let refusal = divergence.refusal(&set);
                if !self.has_warned_of_divergence.swap(true, Ordering::Relaxed) {
                    tracing::warn!("{refusal}");
                }
                Err(refusal)
            }
        }
    }

    /// The map at a node, if it has one.
    async fn stored_map(&self, node: &SetNode) -> Result<Option<DriveMap>> {
        let Some(export) = self.exports.of(node, &self.access.session) else { return Ok(None) };
        let failed = |why: &dyn std::fmt::Display| Error::failed(why.to_string());
        let stored = export.control.map(&export.name).await.map_err(|error| failed(&error))?;
        let map = stored.map(|stored| DriveMap::parse(&stored.map, &self.set())).transpose();
        map.map_err(|error| failed(&error))
    }
}
