//! Opening a drive: connecting its nodes and stacking the layers over them.
//!
//! ```text
//!  gaps                          if parts of its image could not be read
//!  prefetch                      if it has a budget
//!  fence | read-only             if writable | if not
//!  sealed | window               if its nodes hold ciphertext only | the drive's exact size
//!  linear, stripe                over the sets, if there are several; stripe: over the sets of a bundle
//!  stripe | linear               a set, over its nodes; mirror and parity: see `set`
//!  window                        a node's share of its export
//!  NBD client | lost             if connected | if lost, and that is allowed
//! ```
//!
//! Only [`fill`](crate::fill) opens a drive that is still being filled.

use std::sync::Arc;

use cheetah_device::coverage_filter::CoverageFilter;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig, PrefetchStats};
use cheetah_device::readonly::ReadOnly;
use cheetah_device::{Coverage, DynDevice};
use futures::future::join_all;

use crate::care::upkeep;
use crate::file::stack::{exact_size, stack};
use crate::file::{DriveFile, ImageState, coverage};
use crate::layout::lost::LostNode;
use crate::lease::{Fence, Fenced, Leases};
use crate::node::health::node_statuses;
use crate::node::open::{NodeAccess, open_node};
use crate::node::trouble;
pub use crate::node::trouble::Trouble;
use crate::options::OpenOptions;
use crate::sealed::{self, Below};
use crate::set::arrays::Arrays;
use cheetah_error::{Error, Result, next};
use cheetah_seal::{DriveKey, Sealed};

/// An open drive. Call [`Drive::close`]: a dropped drive is not flushed, and its lease is released only if the runtime
/// keeps running.
pub struct Drive {
    device: DynDevice,
    prefetch: Option<Arc<Prefetch>>,
    access: DriveAccess,
    sealed: Option<Arc<Sealed>>,
    troubles: Vec<Trouble>,
}

/// The connections and leases of an open drive.
enum DriveAccess {
    /// None: the drive is read.
    Reader,
    /// The leases of a drive without redundancy.
    Writer(Leases),
    /// The sets of a redundant drive, and their leases if it is written.
    Redundant(Arrays),
}

impl DriveAccess {
    fn fence(&self) -> Option<Arc<Fence>> {
        match self {
            Self::Reader => None,
            Self::Writer(leases) => Some(leases.fence()),
            Self::Redundant(arrays) => arrays.fence(),
        }
    }
}

impl Drive {
    /// Connects to the drive's nodes, takes the write lease if asked to, and assembles the device. The error names
    /// every node that cannot be used.
    pub async fn open(file: &DriveFile, options: OpenOptions) -> Result<Self> {
        let gaps = gaps(file, &options).await?;
        let mut drive = Self::open_unmarked(file, options).await?;
        if let Some(coverage) = gaps {
            drive.device =
                Arc::new(CoverageFilter::new(drive.device, coverage, file.name.as_str(), "when the drive was filled"));
        }
        match &file.image {
            Some(image) if drive.is_writable() && image.state == ImageState::Intact => {
                let modified = crate::Image { state: ImageState::Modified, ..image.clone() };
                match file.clone().update(|file| file.image = Some(modified)) {
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

    /// The same, but without marking a loaded image as modified: callers that write keep the record themselves.
    pub(crate) async fn open_unmarked(file: &DriveFile, options: OpenOptions) -> Result<Self> {
        if options.writable && options.allow_lost {
            return Err(Error::misuse("a drive that has lost nodes can only be read").next(next::Drive::OpenReadOnly));
        }
        // Before anything is taken from other processes: without the key, nothing can be done.
        let key = sealed::unlock(file, &options.session)?;
        if file.is_redundant() {
            let arrays = upkeep::open(file, &options).await?;
            let missing = || arrays.missing().cloned().collect::<Vec<_>>();
            let troubles = if arrays.is_readable() { Vec::new() } else { missing() };
            if let Some(refusal) = trouble::refusal(&file.name, &troubles, file.nodes().count()) {
                return Err(refusal);
            }
            for node in arrays.missing().filter(|_| arrays.is_readable()) {
                tracing::warn!("{} goes on without a node: {node}", file.name);
            }
            // Only the seal can tell whether content is right.
            let alternatives = key.is_some().then(|| arrays.alternatives(file));
            let below = Below { device: arrays.device(), alternatives };
            let Above { device, prefetch, sealed } = match above(file, &options, below, arrays.fence(), key).await {
                Ok(above) => above,
                Err(error) => {
                    arrays.close().await?;
                    return Err(error);
                }
            };
            return Ok(Self { device, prefetch, access: DriveAccess::Redundant(arrays), sealed, troubles });
        }
        if options.writable {
            file.check_one_name()?;
        }
        let leases = match options.writable {
            true => Some(Leases::take(file, options.force_lease, &options.session, |_| true).await?),
            false => None,
        };
        match assemble(file, &options, leases.as_ref(), key).await {
            Ok((Above { device, prefetch, sealed }, troubles)) => {
                let access = leases.map_or(DriveAccess::Reader, DriveAccess::Writer);
                Ok(Self { device, prefetch, access, sealed, troubles })
            }
            Err(error) => {
                if let Some(leases) = leases {
                    leases.release().await;
                }
                Err(error)
            }
        }
    }

    /// The drive as a device. If the drive is open for reading, the device can be read as long as it exists, even after the
    /// drive is dropped.
    pub fn device(&self) -> DynDevice {
        self.device.clone()
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.access.fence().is_some()
    }

    /// The seal, if its nodes hold ciphertext only.
    pub(crate) fn sealed(&self) -> Option<&Sealed> {
        self.sealed.as_deref()
    }

    /// Whether the write lease was lost to another writer.
    pub fn is_fenced(&self) -> bool {
        self.access.fence().is_some_and(|fence| fence.is_up())
    }

    /// The nodes without which parts of it cannot be read; empty unless opened with `allow_lost`.
    pub fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    /// Statistics of the read-ahead, if there is one.
    pub fn prefetch_stats(&self) -> Option<PrefetchStats> {
        self.prefetch.as_ref().map(|prefetch| prefetch.stats())
    }

    /// Flushes, and releases the lease even if flushing fails.
    pub async fn close(self) -> Result<()> {
        if self.access.fence().is_none() {
            return Ok(());
        }
        let mut flushed = self.device.flush().await.map_err(Error::device("flushing the drive"));
        if let Some(sealed) = self.sealed.as_ref().filter(|_| flushed.is_ok()) {
            flushed = sealed.close().await.map_err(Error::device("storing the seal record"));
        }
        // Before the lease is released: none of our requests may be in flight when the next writer starts.
        drop((self.device, self.prefetch, self.sealed));
        match self.access {
            DriveAccess::Reader => {}
            DriveAccess::Writer(leases) => leases.release().await,
            DriveAccess::Redundant(arrays) => {
                let closed = arrays.close().await;
                return flushed.and(closed);
            }
        }
        flushed
    }
}

/// The coverage of an incomplete image, whose unreadable ranges must not be read. Refuses a drive that cannot be opened
/// with these options.
async fn gaps(file: &DriveFile, options: &OpenOptions) -> Result<Option<Coverage>> {
    let name = &file.name;
    if file.fill.is_some() {
        let nodes = node_statuses(file, &options.session).await;
        let writer = nodes.into_iter().find_map(|node| node.writer);
        return Err(being_filled(name, writer.as_deref()));
    }
    let half = file.image.as_ref().filter(|image| image.state == ImageState::Loading);
    if let Some(image) = half.filter(|_| !options.writable && !options.half_loaded) {
        return Err(Error::evidence(format!(
            "{name} holds only part of {}: its load never finished, and missing ranges would read as zeros; load it again",
            image.source
        )));
    }
    let covered = coverage::recorded(file)?;
    if covered.is_some() && options.writable {
        return Err(Error::misuse(format!(
            "parts of {name} could not be read from its source, so it can only be read; let tools write to an overlay"
        )));
    }
    Ok(covered)
}

/// The error of opening a drive that is being filled; `by` is the process that fills it.
pub(crate) fn being_filled(name: &str, by: Option<&str>) -> Error {
    match by {
        Some(process) => {
            Error::failed(format!("{name} is being filled by {process}, and can be read through that process only"))
                .next(next::Lease::ShareOrTakeFill)
        }
        None => Error::failed(format!("{name} is not filled yet, and can be read only while it is being filled"))
            .next(next::Drive::Fill { drive: name.to_owned() }),
    }
}

/// The layers over the sets.
struct Above {
    device: DynDevice,
    prefetch: Option<Arc<Prefetch>>,
    sealed: Option<Arc<Sealed>>,
}

async fn assemble(
    file: &DriveFile,
    options: &OpenOptions,
    leases: Option<&Leases>,
    key: Option<DriveKey>,
) -> Result<(Above, Vec<Trouble>)> {
    let token = |index| leases.and_then(|leases| leases.token(index));
    let access = NodeAccess {
        writable: options.writable,
        connections: options.connections.max(1),
        session: options.session.clone(),
        exclusive: file.sealed.is_some(),
    };
    let opened = join_all(file.nodes().enumerate().map(|(index, node)| open_node(node, token(index), &access))).await;
    let mut troubles = Vec::new();
    let mut devices = Vec::new();
    for (node, opened) in file.nodes().zip(opened) {
        devices.push(match opened {
            Ok(device) => device,
            Err(error) => {
                let trouble = Trouble::from(error);
                let stand_in = LostNode::new(node.name.as_str(), node.size, trouble.why.as_str());
                troubles.push(trouble);
                Arc::new(stand_in)
            }
        });
    }
    let of = devices.len();
    if !troubles.is_empty() && !options.allow_lost {
        return Err(trouble::cannot_open(&file.name, &troubles, of, 0));
    }
    // Other members of the room can read what a node refuses this one.
    if let Some(refusal) = trouble::refusal(&file.name, &troubles, of) {
        return Err(refusal);
    }
    let bad = Error::device(format!("assembling {}", file.name));
    let device = stack(file, devices).map_err(bad)?;
    let below = Below { device, alternatives: None };
    Ok((above(file, options, below, leases.map(Leases::fence), key).await?, troubles))
}

/// The layers over the sets: the seal or the drive's exact size, no writes without a lease, read-ahead.
async fn above(
    file: &DriveFile,
    options: &OpenOptions,
    below: Below,
    fence: Option<Arc<Fence>>,
    key: Option<DriveKey>,
) -> Result<Above> {
    let (device, sealed) = match key {
        Some(key) => {
            let sealed = Arc::new(sealed::open(file, key, below, (options.writable, &options.session)).await?);
            (sealed.clone() as DynDevice, Some(sealed))
        }
        None => {
            let bad = Error::device(format!("assembling {}", file.name));
            (exact_size(file, below.device).map_err(bad)?, None)
        }
    };
    let device: DynDevice = match fence {
        Some(fence) => {
            let fenced = Fenced::new(device, fence, file.name.as_str());
            Arc::new(if file.is_redundant() { fenced.refusing_reads() } else { fenced })
        }
        None => Arc::new(ReadOnly::new(device)),
    };
    if options.prefetch_budget == 0 {
        return Ok(Above { device, prefetch: None, sealed });
    }
    let config = PrefetchConfig { budget_bytes: options.prefetch_budget, ..PrefetchConfig::default() };
    let prefetch = Prefetch::new(device, config);
    Ok(Above { device: prefetch.clone(), prefetch: Some(prefetch), sealed })
}
