//! Requests that store maps at the nodes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_control::ControlError;
use cheetah_control::api::NewMap;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::node::export::NodeExport;

/// The requests that store maps at the nodes. A map counts as stored once enough nodes have it. The remaining nodes get
/// it from here: one request at a time each, and only the newest map.
pub(super) struct Stores {
    by_member: Vec<Arc<tokio::sync::Mutex<()>>>,
    /// The newest epoch to store.
    newest: Arc<AtomicU64>,
    running: Mutex<JoinSet<()>>,
}

/// Why a node did not store a map; a clause.
#[derive(Debug, thiserror::Error)]
pub(super) enum Missed {
    /// A newer map waits for its turn.
    #[error("node {node} gets a newer map")]
    Newer {
        /// The node.
        node: String,
    },
    /// The node did not take it.
    #[error("node {node}: {error}")]
    NotTaken {
        /// The node.
        node: String,
        /// The node's answer.
        #[source]
        error: ControlError,
    },
}

impl Missed {
    /// Whether the node refused it: its lease has ended, or it holds a newer map.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::NotTaken { error, .. } if error.is_conflict())
    }
}

impl Stores {
    pub fn new(members: usize) -> Self {
        Self {
            by_member: (0..members).map(|_| Arc::default()).collect(),
            newest: Arc::default(),
            running: Mutex::default(),
        }
    }

    /// Stores a map at the node of a member, after earlier requests to that node.
    pub fn store(
        &self,
        member: usize,
        export: NodeExport,
        new: NewMap,
    ) -> impl Future<Output = Result<(), Missed>> + Send + use<> {
        let (turn, newest) = (self.by_member[member].clone(), self.newest.clone());
        newest.fetch_max(new.epoch, Ordering::AcqRel);
        async move {
            let _turn = turn.lock().await;
            if newest.load(Ordering::Acquire) > new.epoch {
                return Err(Missed::Newer { node: export.node });
            }
            let stored = export.control.store_map(&export.name, &new).await;
            stored.map_err(|error| Missed::NotTaken { node: export.node, error })
        }
    }

    /// Runs a request that may outlast the wait for it.
    pub fn spawn(&self, request: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(request);
    }

    /// Waits until no request is running.
    pub async fn finish(&self) {
        let mut running = std::mem::take(&mut *self.running.lock());
        while running.join_next().await.is_some() {}
    }
}
