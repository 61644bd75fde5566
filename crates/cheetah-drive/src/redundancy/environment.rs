//! A writer's environment: its leases at the nodes, its connections to them, and the maps it stores there.

use std::sync::Arc;
use std::time::Duration;

use cheetah_control::ControlError;
use cheetah_control::api::{LeaseRequest, NewMap};
use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device as _, DynDevice, Io};
use cheetah_error::{Error, Result};
use cheetah_nbd::client::Client;
use cheetah_redundancy::{DynLink, Map, MemberLink, MemberState, NotStored};
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::map::DriveMap;
use super::votes::{is_majority, voters};
use crate::file::{DriveFile, SetNode};
use crate::lease::{Fence, RENEWAL_S, TTL_S, holder};
use crate::node::export::NodeExport;
use crate::node::open::{NodeAccess, connect_node};

/// How long a node may take to store a map: a write waits for it.
const STORE_TIMEOUT: Duration = Duration::from_millis(400);

/// A writer's leases, and what it does with them.
pub(crate) struct Holder {
    shared: Arc<Shared>,
    renewal: JoinHandle<()>,
}

struct Shared {
    /// The drive file, as last saved.
    file: Mutex<DriveFile>,
    nodes: Mutex<Vec<SetNode>>,
    /// The lease at each node, if it is held there.
    tokens: Mutex<Vec<Option<String>>>,
    fence: Arc<Fence>,
    access: NodeAccess,
}

/// The leases that were taken, and those that could not be.
pub(crate) struct Taken {
    pub holder: Holder,
    /// The nodes at which the lease is held, by index.
    pub held: Vec<bool>,
}

impl Holder {
    /// Takes the leases at the nodes of the map that are not stale, in order, so that of two writers only one goes on.
    /// Nodes that do not answer are left out. With `force`, leases are taken from another writer.
    pub async fn take(file: &DriveFile, map: &DriveMap, force: bool, access: NodeAccess) -> Result<Taken> {
        let shared = Arc::new(Shared {
            file: Mutex::new(file.clone()),
            nodes: Mutex::new(map.nodes.clone()),
            tokens: Mutex::new(vec![None; map.nodes.len()]),
            fence: Arc::new(Fence::default()),
            access,
        });
        for (index, member) in map.map.members.iter().enumerate() {
            if member.state == MemberState::Stale {
                continue;
            }
            match shared.acquire(index, force).await {
                Ok(()) => {}
                Err(error) if error.is_conflict() => {
                    shared.release().await;
                    return Err(Error::failed(format!(
                        "{} has a writer already ({error}); wait for it to end, open the drive read-only, or take it \
                         over with --force-lease",
                        file.name
                    )));
                }
                Err(error) => tracing::debug!("no lease at {}: {error}", map.nodes[index].name),
            }
        }
        let held: Vec<bool> = shared.tokens.lock().iter().map(Option::is_some).collect();
        let count = held.iter().filter(|held| **held).count();
        if !force && !is_majority(count, voters(&map.nodes)) {
            shared.release().await;
            return Err(Error::failed(format!(
                "{}: only {count} of its {} nodes can be reached, too few to be sure that no other writer has it; bring \
                 nodes back, or use --force-lease if you know that nobody writes to it",
                file.name,
                map.nodes.len()
            )));
        }
        let renewal = tokio::spawn(renew(shared.clone()));
        Ok(Taken { holder: Self { shared, renewal }, held })
    }

    /// The fence, which is raised when another writer takes the drive over.
    pub fn fence(&self) -> Arc<Fence> {
        self.shared.fence.clone()
    }

    /// The environment of the recovery engine.
    pub fn environment(&self) -> Arc<dyn cheetah_redundancy::Environment> {
        Arc::new(Keeper(self.shared.clone()))
    }

    /// Connects to a node under the lease that is held there.
    pub async fn connect(&self, member: usize) -> Result<DynLink> {
        self.shared.connect(member).await
    }

    /// Puts an export that holds nothing in the place of a node, and connects to it.
    pub async fn replace(&self, member: usize, node: SetNode) -> Result<DynLink> {
        self.shared.nodes.lock()[member] = node;
        self.shared.tokens.lock()[member] = None;
        let name = self.shared.node(member).name;
        self.shared.acquire(member, false).await.map_err(|error| Error::failed(format!("node {name}: {error}")))?;
        self.shared.connect(member).await
    }

    /// Releases all leases.
    pub async fn release(self) {
        self.renewal.abort();
        self.shared.release().await;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Shared {
    fn node(&self, member: usize) -> SetNode {
        self.nodes.lock()[member].clone()
    }

    fn export(&self, member: usize, timeout: Duration) -> Option<NodeExport> {
        NodeExport::of(&self.node(member), timeout)
    }

    /// Takes the lease at a node. A lease of ours is replaced by a new one, which ends what was sent under the old one.
    async fn acquire(&self, member: usize, force: bool) -> std::result::Result<(), ControlError> {
        let Some(export) = self.export(member, self.access.timeout) else { return Ok(()) };
        let closed = || ControlError::Unreachable { addr: export.node.clone(), why: "the drive was closed".into() };
        let own = self.tokens.lock().get(member).cloned().ok_or_else(closed)?;
        let ours = match own {
            Some(token) => export.control.renew_lease(&export.name, &token).await.is_ok(),
            None => false,
        };
        let request = LeaseRequest { holder: holder(), ttl_s: TTL_S, force: force || ours };
        let grant = export.control.acquire_lease(&export.name, &request).await?;
        if let Some(token) = self.tokens.lock().get_mut(member) {
            *token = Some(grant.token);
            return Ok(());
        }
        // The drive was closed meanwhile: nothing else will release this lease.
        let _ = export.control.release_lease(&export.name, &grant.token).await;
        Err(closed())
    }

    async fn connect(&self, member: usize) -> Result<DynLink> {
        let node = self.node(member);
        let token = self.tokens.lock().get(member).cloned().flatten();
        let (client, device) = connect_node(&node, token.as_deref(), &self.access).await?;
        let device: DynDevice = Arc::new(Leased { inner: device, fence: self.fence.clone(), node: node.name.into() });
        Ok(Arc::new(NodeLink { client, device }))
    }

    async fn release(&self) {
        let tokens = std::mem::take(&mut *self.tokens.lock());
        let releases = tokens.iter().enumerate().map(|(member, token)| async move {
            if let (Some(token), Some(export)) = (token, self.export(member, self.access.timeout))
                && let Err(error) = export.control.release_lease(&export.name, token).await
            {
                tracing::debug!("releasing the lease at {}: {error}", export.node);
            }
        });
        join_all(releases).await;
    }

    async fn store(&self, map: Map) -> std::result::Result<(), NotStored> {
        let nodes = self.nodes.lock().clone();
        let tokens = self.tokens.lock().clone();
        let map = DriveMap { map, nodes };
        let text = map.text(&self.file.lock().id);
        let stores = map.map.members.iter().zip(tokens).enumerate().map(|(member, (entry, token))| {
            let (text, epoch, written) = (text.clone(), map.map.epoch, entry.state.is_written());
            async move {
                let export = self.export(member, STORE_TIMEOUT).filter(|_| written)?;
                let new = NewMap { token: token?, epoch, map: text };
                match export.control.store_map(&export.name, &new).await {
                    Ok(()) => Some(Ok(())),
                    Err(error) => Some(Err((member, format!("node {}: {error}", export.node)))),
                }
            }
        });
        let results: Vec<_> = join_all(stores).await.into_iter().flatten().collect();
        let stored = results.iter().filter(|result| result.is_ok()).count();
        let all = voters(&map.nodes);
        self.save(&map)?;
        if is_majority(stored, all) {
            return Ok(());
        }
        let (members, why): (Vec<usize>, Vec<String>) =
            results.into_iter().filter_map(std::result::Result::err).unzip();
        Err(NotStored { why: format!("{stored} of {all} nodes have it ({})", why.join("; ")), members })
    }

    /// Saves the drive file if nodes were lost, came back or were replaced, or bad ranges changed; it has a vote on that. A drive
    /// without nodes that hold maps has nothing else.
    fn save(&self, map: &DriveMap) -> std::result::Result<(), String> {
        let mut saved = self.file.lock();
        let states = |file: &DriveFile| -> Vec<_> { file.nodes().map(|node| (node.nbd.clone(), node.state)).collect() };
        let mut file = saved.clone();
        map.update(&mut file);
        if states(&file) == states(&saved) && file.bad == saved.bad {
            return Ok(());
        }
        // The image's record may have changed since.
        let mut newest = DriveFile::load(&saved.path).unwrap_or_else(|_| saved.clone());
        map.update(&mut newest);
        newest.save().map_err(|error| error.to_string())?;
        *saved = newest;
        Ok(())
    }
}

/// Renews the leases. One that is refused because another writer holds it raises the fence; one that ended otherwise is lost
/// with its node, which then has to rejoin.
async fn renew(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(RENEWAL_S));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    while !shared.fence.is_up() {
        ticks.tick().await;
        let tokens = shared.tokens.lock().clone();
        let renewals = tokens.iter().enumerate().map(|(member, token)| {
            let shared = &shared;
            async move {
                let (Some(token), Some(export)) = (token, shared.export(member, shared.access.timeout)) else { return };
                let Err(error) = export.control.renew_lease(&export.name, token).await else { return };
                tracing::warn!("renewing the write lease at {}: {error}", export.node);
                if error.is_conflict() && has_other_writer(&export).await {
                    tracing::error!("{} was taken over by another writer, nothing more is written", export.node);
                    shared.fence.raise();
                }
            }
        });
        join_all(renewals).await;
    }
}

async fn has_other_writer(export: &NodeExport) -> bool {
    let Ok(status) = export.control.status().await else { return false };
    let lease = status.exports.into_iter().find(|other| other.name == export.name).and_then(|export| export.lease);
    lease.is_some_and(|lease| lease.holder != holder())
}

/// The environment of the engine.
struct Keeper(Arc<Shared>);

impl cheetah_redundancy::Environment for Keeper {
    fn store(&self, map: Map) -> BoxFuture<'_, std::result::Result<(), NotStored>> {
        Box::pin(self.0.store(map))
    }

    fn reconnect(&self, member: usize) -> BoxFuture<'_, std::result::Result<DynLink, String>> {
        Box::pin(async move {
            let node = self.0.node(member);
            if node.http.is_none() {
                return Err("it is no Cheetah node: what it missed cannot be known".into());
            }
            self.0.acquire(member, false).await.map_err(|error| error.to_string())?;
            self.0.connect(member).await.map_err(|error| error.to_string())
        })
    }
}

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

/// A node's device under our lease. A lease that ended for another reason than another writer is a node lost.
struct Leased {
    inner: DynDevice,
    fence: Arc<Fence>,
    node: Arc<str>,
}

impl Leased {
    fn explain(&self, range: ByteRange, error: cheetah_device::Error) -> cheetah_device::Error {
        match error {
            cheetah_device::Error::Fenced(why) if !self.fence.is_up() => {
                cheetah_device::Error::Lost { device: self.node.clone(), range, why }
            }
            other => other,
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
        Io::later(async move { self.inner.read(range).await.map_err(|error| self.explain(range, error)) })
    }

    fn on_write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        Io::later(async move { self.inner.write(offset, data, fua).await.map_err(|error| self.explain(range, error)) })
    }
}
