//! Creating and enlarging drives.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures::future::{Either, join_all, select};
use tokio::task::JoinHandle;

use super::destroy::{DestroyOptions, destroy};
use super::usage::user;
use crate::file::check::doubled;
use crate::file::places::{self, BUNDLE_UNIT_BYTES};
use crate::file::units::sealed_bytes;
use crate::file::{DriveFile, Set, VERSION};
use crate::layout::kind::Layout;
use crate::layout::plan::{DriveSize, NodeMemory, plan};
use crate::node::allocate::{allocate_one, confirm, export_name, free_exports};
use crate::node::export::NodeExport;
use crate::node::find::{AvailableNode, NodePlace};
use crate::node::health::node_statuses;
use crate::node::trouble::{self, Trouble};
use crate::refused::Refused;
use crate::sealed::{self, SealRequest};
use crate::session::Session;
use crate::set::newest::refresh;
use crate::timing::{CONFIRM_AGAIN, CONFIRM_S};
use cheetah_error::{Error, Result, next};
use cheetah_kit::random;
use cheetah_seal::Units;

/// A drive to create.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// The path of the drive file, which must not exist. The drive is named after it.
    pub path: PathBuf,
    /// The nodes, in order.
    pub nodes: Vec<AvailableNode>,
    /// The layout over the nodes.
    pub layout: Layout,
    /// The size. The drive has exactly this size; the nodes round up.
    pub size: DriveSize,
    /// The number of parts of the drive on each node; 1 without redundancy. Parts can be moved to other nodes later, so
    /// the drive can be spread over this many times its nodes.
    pub parts: usize,
    /// Do not reserve the memory: nodes lend it as it is written, and may run out. Not with redundancy.
    pub thin: bool,
    /// Nodes that may take the place of lost ones, as the user wrote them; only with redundancy.
    pub spares: Vec<String>,
    /// How to seal it; `None`: nodes hold the content as it is.
    pub seal: Option<SealRequest>,
    /// Gets the key of a sealed drive; and how long a node may take to answer.
    pub session: Session,
}

/// Nodes to add to a drive.
#[derive(Debug, Clone)]
pub struct EnlargeRequest {
    /// The nodes, in order. They may hold parts of the drive already.
    pub nodes: Vec<AvailableNode>,
    /// The layout over the nodes. It survives at least as many losses as the drive.
    pub layout: Layout,
    /// The size to add. It starts where the nodes of the last set end.
    pub size: DriveSize,
    /// The number of parts on each node, as for [`CreateRequest`].
    pub parts: usize,
    /// Do not reserve the memory.
    pub thin: bool,
    /// What nodes are called with.
    pub session: Session,
}

/// Allocates the drive on its nodes and writes its file. On any failure, everything is undone. Nodes whose share would
/// be 0 are left out.
pub async fn create(request: CreateRequest) -> Result<DriveFile> {
    let path = request.path.clone();
    if path.symlink_metadata().is_ok() {
        return Err(exists(&path));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = if stem.is_empty() { "drive".to_owned() } else { stem.chars().take(60).collect() };
    let mut file = DriveFile {
        path: path.clone(),
        version: VERSION,
        name,
        id: random::id()?,
        size: 0,
        spares: request.spares.clone(),
        sets: Vec::new(),
        sealed: None,
        image: None,
        fill: None,
        map: None,
    };
    if request.layout.redundancy().is_none() && !request.spares.is_empty() {
        return Err(
            Error::misuse("a spare is of use only to a drive with redundancy").next(next::Layout::ChooseRedundancy)
        );
    }
    let CreateRequest { layout, nodes, parts, thin, session, .. } = &request;
    let addition = Addition { layout: *layout, nodes, parts: *parts, thin: *thin, session };
    let made = addition.allocate(&file, bytes_of_new(request.size, request.seal.as_ref())?).await?;
    file.sets.clone_from(&made.sets);
    file.size = match request.size {
        DriveSize::Bytes(bytes) => bytes,
        DriveSize::All => request.seal.as_ref().map_or(file.capacity(), |seal| seal.fitting(file.capacity())),
    };
    let sealed = request.seal.as_ref().map_or(Ok(()), |seal| sealed::begin(&mut file, seal, &session.keyring));
    match sealed.and_then(|()| file.save_new()) {
        Ok(()) => match made.confirm().await {
            Ok(()) => Ok(file),
            Err(error) => {
                sealed::remove(&file, &session.keyring);
                if let Err(error) = std::fs::remove_file(&file.path) {
                    tracing::warn!("{} is left: {error}", file.path.display());
                }
                Err(made.undo(error).await)
            }
        },
        Err(error) => {
            sealed::remove(&file, &session.keyring);
            Err(made.undo(error).await)
        }
    }
}

/// The bytes that nodes have to hold for a new drive of this size.
///
/// # Errors
///
/// If a sealed drive cannot be that large.
pub fn bytes_of_new(size: DriveSize, seal: Option<&SealRequest>) -> Result<DriveSize> {
    match (size, seal) {
        (DriveSize::Bytes(bytes), Some(seal)) if bytes > 0 => Ok(DriveSize::Bytes(seal.sealed_bytes(bytes)?)),
        _ => Ok(size),
    }
}

/// Creates a drive unless `stop` completes first: then everything is undone, and the error names the reason that `stop`
/// returned. Dropping [`create`] instead would leave allocations behind at the nodes.
pub async fn create_unless(request: CreateRequest, stop: impl Future<Output = impl Display>) -> Result<DriveFile> {
    let session = request.session.clone();
    let mut making = pin!(create(request));
    let stopped = match select(&mut making, pin!(stop)).await {
        Either::Left((made, _)) => return made,
        Either::Right((why, _)) => format!("stopped by {why} before the drive was made"),
    };
    let file = making.await.map_err(|error| error.said(|error| format!("{stopped}; {error}")).as_failed())?;
    Err(match destroy(&file, DestroyOptions { force: true, session }).await {
        Ok(undone) if undone.is_clean() => Error::failed(stopped),
        Ok(_) => {
            Error::failed(format!("{stopped}, but not every node could free its memory")).next(next::Node::AskStatus)
        }
        Err(error) => error.said(|error| format!("{stopped}, but it could not be taken back: {error}")).as_failed(),
    })
}

/// Refuses nodes that would make the redundancy of a drive worthless.
fn check_redundant(nodes: &[AvailableNode], thin: bool) -> Result<()> {
    if thin {
        return Err(Error::misuse("a drive that survives losses reserves its memory").next(next::Layout::LeaveOutThin));
    }
    match doubled(nodes.iter().filter_map(AvailableNode::address)) {
        Some(address) => {
            Err(Error::misuse(format!("two nodes have one address, {address}, and would be lost together"))
                .next(next::Layout::NameOnce))
        }
        None => Ok(()),
    }
}

fn exists(path: &Path) -> Error {
    let path = path.display();
    Error::misuse(format!("{path} exists already")).next(next::Drive::DestroyFirst { path: path.to_string() })
}

/// Appends nodes to the drive, and replaces its file. Processes that have the drive open continue, and see its new size
/// when they open it again. Returns these users, as clauses.
///
/// # Errors
///
/// If the layout survives fewer losses than the drive, if a node of the drive does not answer, or if another process
/// enlarges it too.
pub async fn enlarge(file: &mut DriveFile, request: EnlargeRequest) -> Result<Vec<String>> {
    let (adds, has) = (request.layout.losses_max(), file.losses_max());
    if adds > 0 && !file.is_redundant() {
        return Err(Error::misuse(
            "this drive survives no loss, so nodes are added as stripe or linear; redundancy is chosen when a drive is \
             created",
        ));
    }
    if adds < has {
        return Err(Error::misuse(format!(
            "{} survives the loss of {has}, and a {} that of {adds}",
            file.name,
            request.layout.describe()
        ))
        .next(next::Layout::ChooseLayoutLike));
    }
    file.check_one_name()?;
    let nodes = node_statuses(&refresh(file, &request.session).await?, &request.session).await;
    let troubles: Vec<Trouble> = nodes.iter().filter_map(Trouble::of).collect();
    if let Some(error) = trouble::needs_all(&file.name, "enlarged", &troubles, nodes.len()) {
        return Err(error);
    }
    *file = append(file, &request).await?;
    Ok(nodes.iter().filter_map(user).collect())
}

/// The bytes that new nodes have to hold, so that the drive has `size` more. The content of a sealed drive grows from its
/// end, that of others from the end of its nodes.
///
/// # Errors
///
/// If a sealed drive cannot be that large.
pub fn bytes_of_added(file: &DriveFile, size: DriveSize) -> Result<DriveSize> {
    match (size, &file.sealed) {
        (DriveSize::Bytes(bytes), Some(seal)) if bytes > 0 => {
            let sealed = sealed_bytes(seal.unit, file.size.saturating_add(bytes))?;
            // At least one granule: a set of no bytes is none.
            Ok(DriveSize::Bytes(sealed.saturating_sub(file.capacity()).max(1)))
        }
        _ => Ok(size),
    }
}

async fn append(file: &DriveFile, request: &EnlargeRequest) -> Result<DriveFile> {
    let EnlargeRequest { layout, nodes, parts, thin, session, .. } = request;
    let addition = Addition { layout: *layout, nodes, parts: *parts, thin: *thin, session };
    let made = addition.allocate(file, bytes_of_added(file, request.size)?).await?;
    let capacity = places::capacity(&[file.sets.clone(), made.sets.clone()].concat());
    let size = match (request.size, &file.sealed) {
        (DriveSize::Bytes(bytes), None) => file.capacity().saturating_add(bytes),
        (DriveSize::All, None) => capacity,
        (DriveSize::Bytes(bytes), Some(_)) => file.size.saturating_add(bytes),
        (DriveSize::All, Some(seal)) => Units::fitting(seal.unit, capacity),
    };
    let (mut larger, mut is_as_known) = (file.clone(), false);
    let updated = larger.update_existing(|now| {
        // Nodes of the sets may have been replaced meanwhile.
        is_as_known = now.sets.len() == file.sets.len() && now.size == file.size;
        if is_as_known {
            now.size = size;
            now.sets.extend(made.sets.iter().cloned());
        }
    });
    match updated {
        Ok(()) if is_as_known => made.confirm().await.map(|()| larger),
        Ok(()) => Err(made.undo(Refused::Changed { drive: file.name.clone() }.into()).await),
        Err(error) => Err(made.undo(error).await),
    }
}

/// What is added to a drive.
struct Addition<'a> {
    layout: Layout,
    nodes: &'a [AvailableNode],
    parts: usize,
    thin: bool,
    session: &'a Session,
}

/// The allocations of sets.
struct Made {
    sets: Vec<Set>,
    exports: Vec<NodeExport>,
    /// Has the nodes wait for the confirmation as long as this exists.
    waiting: Option<Waiting>,
}

/// Asks nodes again and again to wait for the confirmation of exports.
struct Waiting(JoinHandle<()>);

impl Waiting {
    fn start(exports: &[NodeExport]) -> Self {
        let exports: Vec<_> = exports.iter().map(|export| (export.control.clone(), export.name.clone())).collect();
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(CONFIRM_AGAIN).await;
                let asking = exports.iter().map(|(control, name)| control.confirm_export(name, Some(CONFIRM_S)));
                for error in join_all(asking).await.into_iter().filter_map(|asked| asked.err()) {
                    tracing::debug!("a node is not asked to wait: {error}");
                }
            }
        }))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Made {
    /// Confirms all exports, once they are recorded.
    async fn confirm(&self) -> Result<()> {
        join_all(self.exports.iter().map(confirm)).await.into_iter().collect()
    }

    /// Frees everything. Returns `why`, extended by the exports that could not be freed.
    async fn undo(self, why: Error) -> Error {
        free_exports(&self.exports, why).await
    }
}

impl Addition<'_> {
    /// Allocates the sets of a drive that follow those in its file; all or nothing.
    async fn allocate(&self, file: &DriveFile, size: DriveSize) -> Result<Made> {
        if self.layout.redundancy().is_some() {
            check_redundant(self.nodes, self.thin)?;
        } else if self.parts != 1 {
            return Err(Error::misuse(
                "several parts on each node are of use only to a drive with redundancy, whose parts can be moved",
            )
            .next(next::Layout::LeaveOutParts));
        }
        let shares = self.shares(size)?;
        let bundle = (self.parts > 1).then(|| places::next_bundle(&file.sets));
        let mut made = Made { sets: Vec::new(), exports: Vec::new(), waiting: None };
        let mut first = file.nodes().count();
        for _ in 0..self.parts {
            match self.allocate_set(file, first, &shares).await {
                Ok((set, exports)) => {
                    first += set.nodes.len();
                    made.exports.extend(exports);
                    made.sets.push(Set { bundle, ..set });
                }
                Err(error) => return Err(made.undo(error).await),
            }
            made.waiting = Some(Waiting::start(&made.exports));
        }
        Ok(made)
    }

    /// The bytes of a part on each node.
    fn shares(&self, size: DriveSize) -> Result<Vec<u64>> {
        let parts = self.parts as u64;
        let mut memory = free(self.nodes, self.thin);
        memory.iter_mut().for_each(|node| node.bytes /= parts);
        let of_each = match size {
            DriveSize::Bytes(bytes) if parts > 1 && bytes > 0 => {
                DriveSize::Bytes(bytes.div_ceil(parts).next_multiple_of(BUNDLE_UNIT_BYTES))
            }
            size => size,
        };
        plan(of_each, self.layout, &memory)
    }

    /// Allocates `shares` on the nodes concurrently; all or nothing. Nodes whose share is 0 are left out.
    async fn allocate_set(&self, file: &DriveFile, first: usize, shares: &[u64]) -> Result<(Set, Vec<NodeExport>)> {
        let parts = self.nodes.iter().zip(shares).filter(|(_, share)| **share > 0).enumerate();
        let parts: Vec<_> = parts.map(|(n, (node, share))| (node, *share, export_name(file, first + n))).collect();
        let allocating =
            parts.iter().map(|(node, share, name)| allocate_one(node, *share, name, self.thin, self.session));
        let (mut entries, mut exports, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for result in join_all(allocating).await {
            match result {
                Ok((entry, export)) => {
                    entries.push(entry);
                    exports.extend(export);
                }
                Err(error) => failures.push(error),
            }
        }
        if failures.is_empty() {
            return Ok((Set::new(self.layout, entries), exports));
        }
        let why: Vec<_> = failures.iter().map(ToString::to_string).collect();
        let sentence = format!("no memory for {}: {}", file.name, why.join("; "));
        Err(free_exports(&exports, trouble::together(sentence, &failures)).await)
    }
}

/// The memory that the nodes offer. A foreign server's export cannot exceed its size.
fn free(nodes: &[AvailableNode], thin: bool) -> Vec<NodeMemory> {
    let overcommits = |place: &NodePlace| thin && matches!(place, NodePlace::Node { .. });
    let free = |node: &AvailableNode| NodeMemory {
        name: node.name.clone(),
        bytes: node.free_bytes,
        overcommits: overcommits(&node.place),
    };
    nodes.iter().map(free).collect()
}
