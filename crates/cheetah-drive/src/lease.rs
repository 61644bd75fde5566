//! The write lease: one writer at a time, on all of a drive's nodes or on none.
//!
//! Leases are taken in file order, so that of two writers who start at once one gets the first node and the other
//! gets nothing. They are renewed in the background; a renewal that is refused means that somebody took the drive
//! over, and raises the [`Fence`]. The nodes refuse a fenced writer anyway; the fence stops it on the nodes that
//! have not been told yet, and makes every layer above see it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_node::control::api::LeaseRequest;
use cheetah_node::control::{ControlClient, ControlError};
use futures::future::join_all;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::file::{DriveFile, SetNode};

/// How long a lease lives unless renewed: seconds. A writer that dies blocks others for so long.
const TTL_S: u64 = 30;
/// How often it is renewed: three times in its life, so that one lost packet loses no drive.
const RENEWAL_S: u64 = TTL_S / 3;

/// Whether the drive may still be written.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    up: AtomicBool,
}

impl Fence {
    /// Whether somebody else took the drive over.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    fn raise(&self) {
        self.up.store(true, Ordering::Release);
    }
}

/// The leases on all nodes of a drive. [`Leases::release`] them: dropped, they expire by themselves.
pub(crate) struct Leases {
    held: Arc<Vec<Held>>,
    fence: Arc<Fence>,
    renewal: JoinHandle<()>,
}

/// The lease on one export.
struct Held {
    /// Index of the node's entry in the drive file.
    node: usize,
    export: Export,
    token: String,
}

/// An export on a node of ours, and how to speak to that node.
pub(crate) struct Export {
    /// The node, as the user knows it.
    pub node: String,
    /// Its name there.
    pub name: String,
    /// The node's control API.
    pub control: ControlClient,
}

impl Export {
    /// The export that holds an entry's bytes; `None` for a foreign server.
    pub fn of(node: &SetNode, timeout: Duration) -> Option<Self> {
        let control = ControlClient::new(node.http.as_ref()?).with_timeout(timeout);
        Some(Self { node: node.name.clone(), name: node.uri()?.export, control })
    }
}

impl Leases {
    /// Takes the lease of every node for which `take` holds, or of none. `force` takes them from whoever has them.
    pub async fn take(file: &DriveFile, force: bool, timeout: Duration, take: impl Fn(usize) -> bool) -> Result<Self> {
        let mut held: Vec<Held> = Vec::new();
        let request = LeaseRequest { holder: holder(), ttl_s: TTL_S, force };
        for (node, entry) in file.nodes().enumerate().filter(|(node, _)| take(*node)) {
            let Some(export) = Export::of(entry, timeout) else { continue };
            match export.control.acquire_lease(&export.name, &request).await {
                Ok(grant) => held.push(Held { node, export, token: grant.token }),
                Err(error) => {
                    release(&held).await;
                    return Err(refused(&file.name, &export.node, &error));
                }
            }
        }
        let (held, fence) = (Arc::new(held), Arc::new(Fence::default()));
        let renewal = tokio::spawn(renew(held.clone(), fence.clone()));
        Ok(Self { held, fence, renewal })
    }

    /// The token for the node at this index of the drive file; `None` if it needs none.
    pub fn token(&self, node: usize) -> Option<&str> {
        self.held.iter().find(|held| held.node == node).map(|held| held.token.as_str())
    }

    /// Whether they still hold.
    pub fn fence(&self) -> Arc<Fence> {
        self.fence.clone()
    }

    /// Gives all of them back.
    pub async fn release(self) {
        self.renewal.abort();
        release(&self.held).await;
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

fn refused(drive: &str, node: &str, error: &ControlError) -> Error {
    if error.is_conflict() {
        return Error::failed(format!(
            "{drive} has a writer already ({error}); wait for it to end, open the drive read-only, or take it over \
             with --force"
        ));
    }
    Error::failed(format!("{drive} cannot be opened for writing, node {node} gave no lease: {error}"))
}

/// Gives back what can be; a node that does not answer will let its lease expire.
async fn release(held: &[Held]) {
    let releases = held.iter().map(|held| held.export.control.release_lease(&held.export.name, &held.token));
    for (held, result) in held.iter().zip(join_all(releases).await) {
        if let Err(error) = result {
            tracing::debug!("releasing the lease on {}: {error}", held.export.node);
        }
    }
}

/// Renews until one is lost for good. A node that does not answer may come back, and its lease with it.
async fn renew(held: Arc<Vec<Held>>, fence: Arc<Fence>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(RENEWAL_S));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    while !fence.is_up() {
        ticks.tick().await;
        let renewals = held.iter().map(|held| held.export.control.renew_lease(&held.export.name, &held.token));
        for (held, result) in held.iter().zip(join_all(renewals).await) {
            match result {
                Ok(_) => {}
                Err(error @ ControlError::Unreachable { .. }) => {
                    tracing::warn!("renewing the write lease on {}: {error}", held.export.node);
                }
                Err(error) => {
                    tracing::error!(
                        "the write lease on {} is lost, nothing more is written: {error}",
                        held.export.node
                    );
                    fence.raise();
                }
            }
        }
    }
}

/// Who we are, in words another examiner understands.
fn holder() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "someone".into());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let who: String = format!("{user}@{host}").chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{who}, process {}", std::process::id())
}
