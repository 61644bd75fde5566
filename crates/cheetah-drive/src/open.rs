//! Opening a drive: connecting its nodes and stacking the layers over them.
//!
//! ```text
//!  gaps                          if parts of its image could not be read
//!  prefetch                      if it has a budget
//!  fence | read-only             writable | not
//!  window                        the drive's exact size
//!  linear                        over the sets, if there are several
//!  stripe | linear … a set       over its nodes
//!  window … a node               its share of the export
//!  NBD client | lost             connected | gone, and that is allowed
//! ```
//!
//! A drive that is still being filled is opened by [`fill`](crate::fill) only.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::gaps::Gaps;
use cheetah_device::linear::Linear;
use cheetah_device::placement::Layout;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig, PrefetchStats};
use cheetah_device::readonly::ReadOnly;
use cheetah_device::stripe::Stripe;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, Coverage, Device as _, DynDevice, Size};
use futures::future::join_all;

use crate::connect::{Connect, connect};
use crate::fence::Fenced;
use crate::file::{DriveFile, ImageState, Set, SetNode};
use crate::fill::{self, being_filled};
use crate::lease::Leases;
use crate::lost::Lost;
use crate::status::{NodeState, node_status, node_statuses};
use cheetah_image::error::{Error, Result};

/// How to open a drive.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Open for writing: takes the write lease, and marks a loaded image as modified.
    pub writable: bool,
    /// Take the write lease from whoever holds it.
    pub force_lease: bool,
    /// Open although nodes are lost; their ranges fail to read. Not together with `writable`.
    pub allow_lost: bool,
    /// Open to read although the load of its image never finished: what is missing reads as zeros.
    pub half_loaded: bool,
    /// How long a node may be silent before its bytes count as lost.
    pub timeout: Duration,
    /// Bytes of memory for read-ahead; 0 for none.
    pub prefetch_budget: u64,
    /// NBD connections to each node.
    pub connections: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            writable: false,
            force_lease: false,
            allow_lost: false,
            half_loaded: false,
            timeout: Duration::from_secs(10),
            prefetch_budget: 64 << 20,
            connections: 2,
        }
    }
}

/// An open drive. [`Drive::close`] it: dropped, it gives its lease back only if the runtime goes on, and flushes nothing.
pub struct Drive {
    device: DynDevice,
    prefetch: Option<Arc<Prefetch>>,
    leases: Option<Leases>,
    lost: Vec<String>,
}

impl Drive {
    /// Connects to the drive's nodes, takes the write lease if asked to, and assembles the device. Every node that
    /// cannot be used is named in the error.
    pub async fn open(file: &DriveFile, options: OpenOptions) -> Result<Self> {
        let gaps = gaps(file, &options).await?;
        let mut drive = Self::open_unmarked(file, options).await?;
        if let Some(coverage) = gaps {
            drive.device = Arc::new(Gaps::new(drive.device, coverage, file.name.as_str(), "when the drive was filled"));
        }
        match &file.image {
            Some(image) if drive.is_writable() && image.state == ImageState::Intact => {
                let mut marked = file.clone();
                marked.image = Some(crate::Image { state: ImageState::Modified, ..image.clone() });
                match marked.save() {
                    Ok(()) => Ok(drive),
                    Err(error) => {
                        drive.close().await?;
                        Err(error)
                    }
                }
            }
            _ => Ok(drive),
        }
    }

    /// The same without marking a loaded image as modified: for the loader, which keeps the record itself.
    pub(crate) async fn open_unmarked(file: &DriveFile, options: OpenOptions) -> Result<Self> {
        if options.writable && options.allow_lost {
            return Err(Error::misuse("a drive that has lost nodes can only be read; open it without --writable"));
        }
        let leases = match options.writable {
            true => Some(Leases::take(file, options.force_lease, options.timeout, |_| true).await?),
            false => None,
        };
        match assemble(file, &options, leases.as_ref()).await {
            Ok((device, prefetch, lost)) => Ok(Self { device, prefetch, leases, lost }),
            Err(error) => {
                if let Some(leases) = leases {
                    leases.release().await;
                }
                Err(error)
            }
        }
    }

    /// The drive as a device.
    pub fn device(&self) -> DynDevice {
        self.device.clone()
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.leases.is_some()
    }

    /// Whether the write lease was lost to another writer.
    pub fn is_fenced(&self) -> bool {
        self.leases.as_ref().is_some_and(|leases| leases.fence().is_up())
    }

    /// What is lost, a sentence for each node; empty unless opened with `allow_lost`.
    pub fn lost(&self) -> &[String] {
        &self.lost
    }

    /// What read-ahead has done; `None` if there is none.
    pub fn prefetch_stats(&self) -> Option<PrefetchStats> {
        self.prefetch.as_ref().map(|prefetch| prefetch.stats())
    }

    /// Flushes what was written, and releases the lease, which happens even where flushing fails.
    pub async fn close(self) -> Result<()> {
        let Some(leases) = self.leases else { return Ok(()) };
        let flushed = self.device.flush().await.map_err(Error::device("flushing the drive"));
        // Before the lease goes: no request of ours may be under way when the next writer starts.
        drop((self.device, self.prefetch));
        leases.release().await;
        flushed
    }
}

/// What must not be read of the drive's image, if anything; refuses a drive that cannot be opened so.
async fn gaps(file: &DriveFile, options: &OpenOptions) -> Result<Option<Coverage>> {
    let name = &file.name;
    if file.fill.is_some() {
        let nodes = node_statuses(file, options.timeout).await;
        let writer = nodes.into_iter().find_map(|node| node.writer);
        return Err(Error::failed(being_filled(name, writer.as_deref())));
    }
    let half = file.image.as_ref().filter(|image| image.state == ImageState::Loading);
    if let Some(image) = half.filter(|_| !options.writable && !options.half_loaded) {
        return Err(Error::Evidence(format!(
            "{name} holds a part of {} only: its load never finished, and what is missing would read as zeros; load it again",
            image.source
        )));
    }
    let covered = fill::covered(file)?;
    if covered.is_some() && options.writable {
        return Err(Error::misuse(format!(
            "parts of {name} could not be read from its source, so it can only be read; let tools write to an overlay"
        )));
    }
    Ok(covered.map(|covered| covered.coverage))
}

type Assembled = (DynDevice, Option<Arc<Prefetch>>, Vec<String>);

async fn assemble(file: &DriveFile, options: &OpenOptions, leases: Option<&Leases>) -> Result<Assembled> {
    let token = |index| leases.and_then(|leases| leases.token(index));
    let opened = join_all(file.nodes().enumerate().map(|(index, node)| open_node(node, token(index), options))).await;
    let mut lost = Vec::new();
    let mut devices = Vec::new();
    for (node, opened) in file.nodes().zip(opened) {
        devices.push(opened.unwrap_or_else(|error| {
            let why = error.to_string();
            let stand_in = Lost::new(node.name.as_str(), node.size, why.as_str());
            lost.push(why);
            Arc::new(stand_in)
        }));
    }
    if !lost.is_empty() && !options.allow_lost {
        let (count, of) = (lost.len(), devices.len());
        let hint =
            "bring them back, or read the rest with `mount --allow-lost`, `export --allow-lost` or `save --partial`";
        return Err(Error::failed(format!("{}: {count} of {of} nodes lost: {}; {hint}", file.name, lost.join("; "))));
    }
    let bad = Error::device(format!("assembling {}", file.name));
    let device = stack(file, devices).map_err(bad)?;
    let device: DynDevice = match leases {
        Some(leases) => Arc::new(Fenced::new(device, leases.fence(), file.name.as_str())),
        None => Arc::new(ReadOnly::new(device)),
    };
    if options.prefetch_budget == 0 {
        return Ok((device, None, lost));
    }
    let config = PrefetchConfig { budget_bytes: options.prefetch_budget, ..PrefetchConfig::default() };
    let prefetch = Prefetch::new(device, config);
    Ok((prefetch.clone(), Some(prefetch), lost))
}

/// The sets over their nodes' devices (in file order), one after the other, cut to the drive's size.
fn stack(file: &DriveFile, devices: Vec<DynDevice>) -> cheetah_device::Result<DynDevice> {
    let mut devices = devices.into_iter();
    let mut over = |set: &Set| -> cheetah_device::Result<DynDevice> {
        let nodes = devices.by_ref().take(set.nodes.len()).collect();
        Ok(match set.layout() {
            Layout::Linear => Arc::new(Linear::new(nodes)?),
            Layout::Stripe { unit } => Arc::new(Stripe::new(unit, nodes)?),
        })
    };
    let mut sets = file.sets.iter().map(&mut over).collect::<cheetah_device::Result<Vec<_>>>()?;
    let whole: DynDevice = match sets.len() {
        1 => sets.remove(0),
        _ => Arc::new(Linear::new(sets)?),
    };
    if whole.geometry().size == file.size {
        return Ok(whole);
    }
    Ok(Arc::new(Window::new(whole, ByteRange::new(0, file.size))?))
}

/// Connects to one node: only to the instance that was given the bytes, and to write only under our lease.
async fn open_node(node: &SetNode, token: Option<&str>, options: &OpenOptions) -> Result<DynDevice> {
    let uri = node.uri().ok_or_else(|| Error::failed(format!("node {}: '{}' is no NBD URI", node.name, node.nbd)))?;
    let instance = node.instance.iter().map(|instance| format!("x-cheetah:instance/{instance}"));
    let lease = token.map(|token| format!("x-cheetah:lease/{token}"));
    let wanted = Connect {
        name: node.name.clone(),
        uri,
        contexts: instance.chain(lease).collect(),
        writable: options.writable,
        connections: options.connections.max(1),
        timeout: options.timeout,
    };
    let client = match connect(wanted).await {
        Ok(client) => client,
        Err(error) => return Err(explain(node, error, options.timeout).await),
    };
    let size = client.geometry().size;
    if size < node.size {
        return Err(Error::failed(format!(
            "node {}: its export has {} where the drive needs {}; is it the export the drive was made with?",
            node.name,
            Size(size),
            Size(node.size)
        )));
    }
    if size == node.size {
        return Ok(client);
    }
    let share = Window::new(client, ByteRange::new(0, node.size));
    share.map(|share| Arc::new(share) as DynDevice).map_err(Error::device(format!("node {}", node.name)))
}

/// Why a node did not let us in: the node's control API knows it better than the handshake that failed.
async fn explain(node: &SetNode, error: Error, timeout: Duration) -> Error {
    if node.http.is_none() {
        return error;
    }
    let status = node_status(0, node, timeout).await;
    match (status.state, status.problem) {
        (NodeState::Empty, Some(problem)) => Error::failed(problem),
        _ => error,
    }
}
