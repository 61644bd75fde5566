//! The write lease: one writer at a time, on all of a drive's nodes or on none.
//!
//! Leases are taken in file order, so that of two writers that start at once, one gets the first node and the other
//! gets nothing. They are renewed in the background. A refused renewal means that another writer took the drive over,
//! and raises the [`Fence`]. The nodes refuse a fenced writer anyway; the fence also stops its writes to nodes that
//! have not been taken over yet, and makes every layer above fail at once.

mod fence;
mod holder;

use std::sync::Arc;
use std::time::Duration;

use cheetah_control::ControlError;
use cheetah_control::api::LeaseRequest;
use futures::future::join_all;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub(crate) use self::fence::{Fence, Fenced};
pub(crate) use self::holder::holder;
pub use self::holder::user_name;
use crate::file::{DriveFile, SetNode};
use crate::node::export::NodeExport;
use crate::node::health::node_status;
use crate::node::trouble::Trouble;
use crate::session::Session;
use crate::timing::{RENEWAL_S, TTL_S};
use cheetah_error::{Error, Result, next};

/// The leases on all nodes of a drive. Call [`Leases::release`]: dropped leases are released only if the runtime keeps
/// running, and expire otherwise.
pub(crate) struct Leases {
    held: Arc<Vec<HeldLease>>,
    fence: Arc<Fence>,
    renewal: JoinHandle<()>,
}

/// The lease on one export.
struct HeldLease {
    /// The index of the node's entry in the drive file.
    node: usize,
    export: NodeExport,
    token: String,
}

impl Leases {
    /// Takes the leases of all nodes for which `take` holds, or of none. `force` takes them from other holders.
    pub async fn take(file: &DriveFile, force: bool, session: &Session, take: impl Fn(usize) -> bool) -> Result<Self> {
        let held = Arc::new(acquire(file, force, session, take).await?);
        let fence = Arc::new(Fence::default());
        let renewal = tokio::spawn(renew(held.clone(), fence.clone(), Duration::from_secs(RENEWAL_S)));
        Ok(Self { held, fence, renewal })
    }
    /// The token for the node at this index of the drive file; `None` if it needs none.
    pub fn token(&self, node: usize) -> Option<&str> {
        self.held.iter().find(|held| held.node == node).map(|held| held.token.as_str())
    }

    /// The fence, which is raised when a lease is lost.
    pub fn fence(&self) -> Arc<Fence> {
        self.fence.clone()
    }

    /// Releases all leases.
    pub async fn release(mut self) {
        self.renewal.abort();
        release(&std::mem::take(&mut self.held)).await;
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.renewal.abort();
        let held = std::mem::take(&mut self.held);
        if let (false, Ok(runtime)) = (held.is_empty(), Handle::try_current()) {
            runtime.spawn(async move { release(&held).await });
        }
    }
}

async fn acquire(
    file: &DriveFile,
    force: bool,
    session: &Session,
    take: impl Fn(usize) -> bool,
) -> Result<Vec<HeldLease>> {
    let mut held: Vec<HeldLease> = Vec::new();
    let request = LeaseRequest { holder: holder(), ttl_s: TTL_S, force };
    for (node, entry) in file.nodes().enumerate().filter(|(node, _)| take(*node)) {
        let Some(export) = NodeExport::of(entry, session) else { continue };
        match export.control.acquire_lease(&export.name, &request).await {
            Ok(grant) => held.push(HeldLease { node, export, token: grant.token }),
            Err(error) => {
                release(&held).await;
                return Err(refused(&file.name, entry, &error, session).await);
            }
        }
    }
    Ok(held)
}

async fn refused(drive: &str, node: &SetNode, error: &ControlError, session: &Session) -> Error {
    if error.is_conflict() {
        return Error::failed(format!("{drive} has a writer already ({error})")).next(next::Lease::ForceLease);
    }
    // A node without the export has probably restarted; the error should say so.
    let asked = match error {
        ControlError::NoAnswer { .. } => None,
        _ if error.is_refusal() => None,
        _ => Trouble::of(&node_status(0, node, session).await),
    };
    let found = asked.unwrap_or_else(|| Trouble::of_call(&node.name, error));
    Error::from(found).within(format_args!("{drive} cannot be opened for writing"))
}

/// Releases leases. At a node that does not answer, the lease expires.
async fn release(held: &[HeldLease]) {
    let releases = held.iter().map(|held| held.export.control.release_lease(&held.export.name, &held.token));
    for (held, result) in held.iter().zip(join_all(releases).await) {
        if let Err(error) = result {
            tracing::debug!("releasing the lease on {}: {error}", held.export.node);
        }
    }
}

/// Renews the leases until one is lost. A node that does not answer may come back, with its lease.
async fn renew(held: Arc<Vec<HeldLease>>, fence: Arc<Fence>, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    while !fence.is_up() {
        ticks.tick().await;
        let renewals = held.iter().map(|held| held.export.control.renew_lease(&held.export.name, &held.token));
        for (held, result) in held.iter().zip(join_all(renewals).await) {
            match result {
                Ok(_) => {}
                Err(error @ ControlError::NoAnswer { .. }) if !error.is_refusal() => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::file::tests::example;
    use cheetah_control::api::NewExport;
    use cheetah_node::{Node, NodeConfig};
    use cheetah_tls::CredentialSet;

    fn session() -> Session {
        Session::new(CredentialSet::default(), Arc::default(), Duration::from_secs(60))
    }

    /// A drive over one export on each of two nodes.
    async fn drive() -> (DriveFile, [Node; 2]) {
        let start = || Node::start(NodeConfig::new(1 << 20, "127.0.0.1:0".parse().unwrap())).unwrap();
        let nodes = [start(), start()];
        let entry = |node: &Node| {
            node.exports().create(&NewExport::thin("case42-0", 65536)).unwrap();
            SetNode {
                name: node.nbd_address().to_string(),
                nbd: format!("nbd://{}/case42-0", node.nbd_address()),
                http: Some(node.http_address().to_string()),
                instance: Some(node.status().instance),
                size: 65536,
                state: None,
                receipt: None,
            }
        };
        let set = crate::file::Set::new(Layout::Linear, nodes.iter().map(entry).collect());
        (DriveFile { size: set.size, sets: vec![set], image: None, ..example() }, nodes)
    }

    fn leased(node: &Node) -> bool {
        node.status().exports[0].lease.is_some()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_refused_renewal_raises_the_fence() {
        let (file, _nodes) = drive().await;
        let first = Arc::new(acquire(&file, false, &session(), |_| true).await.unwrap());
        let fence = Arc::new(Fence::default());
        let renewal = tokio::spawn(renew(first, fence.clone(), Duration::from_millis(1)));
        let second = Leases::take(&file, true, &session(), |_| true).await.unwrap();
        renewal.await.unwrap();
        assert!(fence.is_up() && !second.fence().is_up());
        second.release().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn either_all_leases_are_taken_or_none() {
        let (file, nodes) = drive().await;
        let other = Leases::take(&file, false, &session(), |node| node == 1).await.unwrap();
        assert!(other.token(0).is_none() && other.token(1).is_some());
        let refusal = Leases::take(&file, false, &session(), |_| true).await.err().unwrap();
        assert!(refusal.has_next(next::Lease::ForceLease), "{refusal}");
        assert!(!leased(&nodes[0]) && leased(&nodes[1]), "the leases taken are released, the other writer's is not");
        other.release().await;
        assert!(!leased(&nodes[1]));
    }
}
