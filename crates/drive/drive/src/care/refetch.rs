//! Fetching lost ranges again from the source of the image, after more nodes were lost than the layout survives.
//!
//! The lost members are replaced by empty nodes, and the map is marked as refetching. Until every range is restored, no
//! process reads the drive by this map, and processes that have the drive open keep the former map. Chunks that cannot
//! be read, or differ from the digests made at load, are read from the source, compared with these digests, and
//! written. Then redundancy is recomputed, and the mark is removed. The next run continues an interrupted one.

use std::sync::Arc;

use cheetah_device::{ByteRange, Device as _, DynDevice, Size};
use cheetah_error::{Error, Result, next};
use cheetah_redundancy::map::Member;
use cheetah_redundancy::{MemberState, Regions};
use cheetah_seal::{DriveKey, Sealed};
use futures::{StreamExt as _, stream};

use super::repair::Replacement;
use super::spare::{available, check, restarted};
use crate::copy::{ChunkWriter, CopyProgress, ReadChunk, chunks, read_exactly};
use crate::file::digests::{CHUNK_BYTES, Digests, digest};
use crate::file::set::DriveSet;
use crate::file::{DriveFile, Image, ImageState, SetNode};
use crate::node::allocate::{allocate_spare, confirm, free_spare};
use crate::node::export::NodeExport;
use crate::node::find::AvailableNode;
use crate::node::health::{NodeState, NodeStatus, set_statuses};
use crate::node::open::NodeAccess;
use crate::sealed::{self, Below};
use crate::session::Session;
use crate::set::arrays::{Arrays, close};
use crate::set::map::DriveMap;
use crate::set::newest::{newest, record};
use crate::set::open::{Opened, open_refetching};
use crate::set::votes::votes;

/// Chunks that are read from the source at once.
const AT_ONCE: usize = 4;

/// How to fetch lost ranges again.
#[derive(Clone)]
pub struct RefetchOptions {
    /// The source of the drive's image.
    pub source: DynDevice,
    /// Nodes that may take the place of lost ones.
    pub spares: Vec<AvailableNode>,
    /// Continue although too few nodes answer to exclude that another process writes the drive.
    pub force_lease: bool,
    /// What the drive is opened with.
    pub session: Session,
}

/// The ranges that were fetched again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refetched {
    /// The ranges, in order, neighbours merged. All of them are again as loaded.
    pub ranges: Vec<ByteRange>,
    /// Nodes that were replaced.
    pub replaced: Vec<Replacement>,
}

impl Refetched {
    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.len).sum()
    }
}

/// Whether ranges have to be fetched again: a redundant drive has lost more nodes than it survives, or it has bad
/// ranges, or an earlier run was interrupted.
///
/// # Errors
///
/// If the nodes' maps contradict each other.
pub async fn is_needed(file: &DriveFile, session: &Session) -> Result<bool> {
    if !file.is_redundant() {
        return Ok(false);
    }
    for set in DriveSet::all(file) {
        let (map, lost) = look(&set, session).await?;
        if map.refetching || lost.len() > set.losses_max() || !map.map.bad.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fetches lost ranges from the source, and restores full redundancy.
///
/// # Errors
///
/// `Kind::Evidence` if the source has changed. Otherwise if the image was modified or has no digests, if there are
/// too few spares, or if another process has the drive open for writing.
pub async fn refetch(
    file: &mut DriveFile,
    options: &RefetchOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<Refetched> {
    let key = sealed::unlock(file, &options.session)?;
    let (image, digests) = loaded(file)?;
    let size = options.source.geometry().size;
    if size != image.size {
        let (source, then, now) = (&image.source, Size(image.size), Size(size));
        return Err(Error::evidence(format!(
            "{source} had {then} when it was loaded, and has {now} now: it has changed"
        )));
    }
    let mut found = Vec::new();
    for set in DriveSet::all(file) {
        let (map, lost) = look(&set, &options.session).await?;
        check_voters(&set, &map, options).await?;
        found.push((set, map, lost));
    }
    let mut restored: Vec<Restored> = Vec::new();
    for (set, map, lost) in found {
        match replace(&set, map, &lost, options).await {
            Ok((map, replaced)) => restored.push(Restored { set, map, lost, replaced }),
            Err(error) => return Err(free_all(&restored, error, &options.session).await),
        }
    }
    let opened = match open_all(&restored, options).await {
        Ok(opened) => opened,
        Err(error) => return Err(free_all(&restored, error, &options.session).await),
    };
    let arrays = Arrays::stack(file, opened, None)?;
    let fetched = match whole(file, &arrays, (key, &options.session)).await {
        Ok(drive) => fetch(file, &arrays, &drive, options, &digests, progress).await,
        Err(error) => Err(error),
    };
    for holder in arrays.sets().iter().filter_map(Opened::holder) {
        holder.shared().set_refetching(fetched.is_err());
    }
    let closed = arrays.close().await;
    let ranges = match fetched {
        Ok(ranges) => ranges,
        Err(mut error) => {
            for part in &restored {
                // Unless a map with the new nodes was stored, the set is unchanged.
                let is_stored = newest(&part.set, &options.session).await.map_or(true, |found| found.map.refetching);
                if !is_stored {
                    error = part.free(error, &options.session).await;
                }
            }
            return Err(error);
        }
    };
    closed?;
    let known = file.clone();
    record(file, &known, &options.session).await?;
    Ok(Refetched { ranges, replaced: restored.into_iter().flat_map(|part| part.replaced).collect() })
}

/// A set whose lost members were given new nodes.
struct Restored {
    set: DriveSet,
    map: DriveMap,
    lost: Vec<usize>,
    replaced: Vec<Replacement>,
}

impl Restored {
    /// Frees the exports on the new nodes.
    async fn free(&self, why: Error, session: &Session) -> Error {
        free(&self.map, &self.lost, why, session).await
    }
}

async fn free_all(restored: &[Restored], mut why: Error, session: &Session) -> Error {
    for part in restored {
        why = part.free(why, session).await;
    }
    why
}

async fn open_all(restored: &[Restored], options: &RefetchOptions) -> Result<Vec<Opened>> {
    let access = NodeAccess { writable: true, connections: 2, session: options.session.clone(), exclusive: false };
    let mut opened = Vec::new();
    for Restored { set, map, .. } in restored {
        match open_refetching(set, map, options.force_lease, access.clone(), Arc::default()).await {
            Ok(set) => opened.push(set),
            Err(error) => {
                close(opened).await.unwrap_or_else(|error| tracing::warn!("{error}"));
                return Err(error);
            }
        }
    }
    Ok(opened)
}

/// The newest map, and the members that are lost in it.
async fn look(set: &DriveSet, session: &Session) -> Result<(DriveMap, Vec<usize>)> {
    let map = newest(set, session).await?.map;
    let statuses = set_statuses(&now(set, &map), session).await;
    let lost = statuses.iter().enumerate().filter(|(_, node)| !node.is_whole()).map(|(index, _)| index).collect();
    Ok((map, lost))
}

/// The set by this map.
fn now(set: &DriveSet, map: &DriveMap) -> DriveSet {
    let mut now = set.clone();
    map.update(&mut now.drive, now.index);
    now
}

/// The image, if it is unchanged since the load, and its digests.
fn loaded(file: &DriveFile) -> Result<(Image, Digests)> {
    let name = &file.name;
    match &file.image {
        Some(image @ Image { state: ImageState::Intact, digests: Some(recorded), .. }) => {
            Ok((image.clone(), Digests::load(file, recorded, image.size)?))
        }
        Some(Image { state: ImageState::Modified, .. }) => Err(Error::evidence(format!(
            "{name} was opened for writing since it was loaded: the source does not have what was written"
        ))
        .next(next::Drive::SavePartial)),
        Some(_) => Err(Error::failed(format!("the image on {name} was not loaded in full: load it again"))),
        None => Err(Error::misuse(format!("{name} holds no image that could be fetched again"))),
    }
}

/// Refuses to continue if another process may be writing the drive over nodes that cannot be reached from here. A
/// restarted node is empty, so no process writes there.
async fn check_voters(set: &DriveSet, map: &DriveMap, options: &RefetchOptions) -> Result<()> {
    let statuses = set_statuses(&now(set, map), &options.session).await;
    let name = &set.drive.name;
    if let Some(writer) = statuses.iter().find_map(|node| node.writer.as_deref()).filter(|_| !options.force_lease) {
        return Err(Error::failed(format!("{name} is written by {writer}; close it there first")));
    }
    let knows = |node: &&NodeStatus| match node.state {
        NodeState::Ok | NodeState::Restarted => true,
        // It said so itself.
        NodeState::Lost => node.transport.is_some(),
        _ => false,
    };
    let known = statuses.iter().filter(knows).count();
    if map.nodes.iter().all(|node| node.http.is_none()) {
        return Err(Error::failed(format!(
            "{name} consists of foreign servers only, which hold no map: load the image again"
        )));
    }
    if !options.force_lease && !votes(&map.nodes, set.losses_max()).decide(known, true) {
        return Err(Error::failed(format!(
            "{name}: only {known} of its {} nodes can be asked, too few to be sure that no other process writes it",
            map.nodes.len()
        ))
        .next(next::Lease::ForceLeaseIfAlone));
    }
    Ok(())
}

/// Allocates the parts of the lost members on spares. Returns the map to continue with.
async fn replace(
    set: &DriveSet,
    mut map: DriveMap,
    lost: &[usize],
    options: &RefetchOptions,
) -> Result<(DriveMap, Vec<Replacement>)> {
    let mut spares = options.spares.clone();
    spares.extend(available(&set.drive.spares, &options.session).await);
    let mut replaced = Vec::new();
    let mut allocated: Vec<usize> = Vec::new();
    for index in lost.iter().copied() {
        let own = restarted(&map.nodes[index], &options.session).await;
        let suits = |spare: &&AvailableNode| check(spare, &set.drive.name, &map.nodes, index).is_ok();
        let (name, size) = (map.nodes[index].name.clone(), map.nodes[index].size);
        let made = match spares.iter().chain(&own).find(suits) {
            Some(spare) => allocate_spare(set, index, map.map.epoch + 1, spare, size, &options.session).await,
            None => Err(Error::failed(format!(
                "{name} is to be replaced by a node with {} of free memory, and none of the spares can",
                Size(size)
            ))
            .next(next::Layout::NameMoreNodes { lost: lost.len() })),
        };
        match made {
            Ok(node) => {
                if let Some(export) = NodeExport::of(&node, &options.session)
                    && let Err(error) = confirm(&export).await
                {
                    return Err(free(&map, &allocated, error, &options.session).await);
                }
                replaced.push(Replacement { lost: name, by: node.name.clone() });
                map.nodes[index] = node;
                allocated.push(index);
            }
            Err(error) => return Err(free(&map, &allocated, error, &options.session).await),
        }
    }
    let none = Regions::new(set.capacity());
    // Redundancy agrees with the data nowhere until it is recomputed.
    map.map.unsettled = none.whole();
    map.map.members.fill(Member::new(MemberState::InSync, none));
    map.incoming.fill(None);
    (map.map.open, map.refetching) = (false, true);
    Ok((map, replaced))
}

/// Frees the exports allocated on spares.
async fn free(map: &DriveMap, allocated: &[usize], mut why: Error, session: &Session) -> Error {
    let nodes: Vec<&SetNode> = allocated.iter().map(|index| &map.nodes[*index]).collect();
    for node in nodes {
        why = free_spare(node, why, session).await;
    }
    why
}

/// What is read and written: the drive, or the seal over it.
struct Whole {
    device: DynDevice,
    sealed: Option<Arc<Sealed>>,
}

/// A lost unit of a sealed drive does not open, so it is fetched again; other members are not asked for it.
async fn whole(file: &DriveFile, arrays: &Arrays, (key, session): (Option<DriveKey>, &Session)) -> Result<Whole> {
    let Some(key) = key else { return Ok(Whole { device: arrays.device(), sealed: None }) };
    let below = Below { device: arrays.device(), alternatives: None };
    let sealed = Arc::new(sealed::open(file, key, below, (true, session)).await?);
    Ok(Whole { device: sealed.clone(), sealed: Some(sealed) })
}

/// Fetches every chunk that is not as loaded, and recomputes redundancy. Returns the ranges that were fetched.
async fn fetch(
    file: &DriveFile,
    arrays: &Arrays,
    drive: &Whole,
    options: &RefetchOptions,
    digests: &Digests,
    mut progress: impl FnMut(CopyProgress) + Send,
) -> Result<Vec<ByteRange>> {
    let size = digests.size();
    let Whole { device: drive, sealed } = drive;
    let mut gone = Vec::new();
    let mut reads = std::pin::pin!(chunks(drive.clone(), size, size));
    while let Some(ReadChunk { range, read }) = reads.next().await {
        let found = read.ok().and_then(|(_, digest)| digest);
        if found.is_none() || found.as_ref() != digests.get(range.offset) {
            gone.push(range);
        }
    }
    if gone.is_empty() {
        // A former run was interrupted at its very end. Any write opens the map; closing it then removes the mark.
        gone.extend(ByteRange::new(0, size).split_at_multiples(CHUNK_BYTES).next());
    }
    let read = |range: ByteRange| {
        let source = options.source.clone();
        async move { (range, read_exactly(&source, range).await) }
    };
    let total = gone.iter().map(|range| range.len).sum();
    let mut writer = ChunkWriter::new(drive.clone(), file.name.as_str());
    let mut fetched = std::pin::pin!(stream::iter(gone.clone()).map(read).buffered(AT_ONCE));
    while let Some((range, data)) = fetched.next().await {
        let data = data.map_err(Error::device(format!("reading {range} of the source again")))?;
        if digests.get(range.offset) != Some(&digest(&data)) {
            return Err(Error::evidence(format!(
                "the source has changed: {range} is not as it was when it was loaded; bring the source back as it was \
                 and repeat this, or load the image again"
            )));
        }
        writer.write(range, data).await?;
        progress(CopyProgress { done: writer.written(), total });
    }
    writer.wait().await?;
    let failed = || Error::device(format!("fetching lost ranges of {} again", file.name));
    drive.flush().await.map_err(failed())?;
    if let Some(sealed) = sealed {
        sealed.close().await.map_err(failed())?;
    }
    for set in arrays.sets() {
        let resynced = set.redundant.resync(&mut |_, _| {}).await.map_err(failed())?;
        if !resynced.complete {
            return Err(Error::failed(format!("{}: redundancy could not be recomputed; repeat this", file.name)));
        }
    }
    Ok(merged(gone))
}

/// Merges neighbouring ranges.
fn merged(ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    let mut merged: Vec<ByteRange> = Vec::new();
    ranges.into_iter().for_each(|range| range.append_to(&mut merged));
    merged
}
