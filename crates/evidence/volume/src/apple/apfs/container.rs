//! A container: its superblock of the last checkpoint, its volumes, and their keys.

use cheetah_device::ByteRange;
use cheetah_device::le::{u32_at, u64_at};
use futures::future::join_all;

use super::super::part::Part;
use super::super::{Flaw, Result, Uuid};
use super::blob::Blob;
use super::blocks::{BLOCK_BYTES_MAX, Blocks, kind};
use super::key_bag::{self, BagPlace, Entry, entry};
use super::object_map::{Limits, ObjectMap};
use super::superblock::{HARDWARE, KEY_BAG, Opener, Volume};
use crate::checks::Checks;

/// Kinds of objects.
const CONTAINER: u32 = 1;
const VOLUME: u32 = 0xd;
const MAGIC: &[u8] = b"NXSB";
/// The bytes that are read first. They hold a whole superblock for every size of blocks.
const HEAD_BYTES: u64 = 4096;
/// The longest area of checkpoints, in bytes. They have some hundred blocks.
const CHECKPOINT_BYTES_MAX: u64 = 16 << 20;
/// The most of the map of a container, which has some ten objects. It is read whenever a source is opened.
const MAP_LIMITS: Limits = Limits { nodes: 1024, mappings: 64 << 10 };
/// Set in the number of those blocks if they lie apart.
const APART: u32 = 1 << 31;
const FUSION: u64 = 0x100;
/// Set if software encrypts the volumes.
const SOFTWARE: u64 = 4;
const VOLUMES_MAX: usize = 100;
/// The most keys that open one volume.
const OPENERS_MAX: usize = 64;

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its identifier.
    pub id: Uuid,
    /// Its volumes.
    pub volumes: Vec<Volume>,
    /// Why others are not known.
    pub unread: Vec<Flaw>,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) transaction: u64,
    pub(super) checks: Checks,
}

impl Container {
    pub(super) async fn read(part: &Part<'_>, checks: Checks) -> Result<Self> {
        let damaged = || Flaw::Damaged("the superblock of the container is damaged");
        let head = part.read(0, HEAD_BYTES.min(part.range.len)).await?;
        let block_bytes = u64::from(u32_at(&head, 36));
        let is_size = block_bytes.is_power_of_two() && (HEAD_BYTES..=BLOCK_BYTES_MAX).contains(&block_bytes);
        if head.get(32..36) != Some(MAGIC) || !is_size {
            return Err(damaged());
        }
        let blocks = Blocks { part: *part, block_bytes, checks };
        let superblock = last_checkpoint(&blocks, &head).await?;
        if u64_at(&superblock, 64) & FUSION != 0 {
            return Err(Flaw::Unsupported("a container on several disks (Fusion Drive)".to_owned()));
        }
        let mut container = Self {
            id: Uuid::at(&superblock, 72).ok_or_else(damaged)?,
            volumes: Vec::new(),
            unread: Vec::new(),
            block_bytes,
            blocks: u64_at(&superblock, 40),
            transaction: u64_at(&superblock, 16),
            checks,
        };
        let bag = BagPlace::at(&superblock, 1296);
        // Without keys no volume is encrypted.
        if bag.block > 0 {
            let is_software = u64_at(&superblock, 1264) & SOFTWARE != 0;
            container.read_volumes(&blocks, &superblock).await?;
            container.read_keys(&blocks, bag, is_software).await?;
        }
        Ok(container)
    }

    async fn read_volumes(&mut self, blocks: &Blocks<'_>, superblock: &[u8]) -> Result<()> {
        let ids = (0..VOLUMES_MAX).map(|number| u64_at(superblock, 184 + 8 * number)).filter(|id| *id > 0);
        let map = ObjectMap::read(blocks, u64_at(superblock, 160), MAP_LIMITS).await?;
        let mut places = Vec::new();
        for id in ids {
            match map.find(id, self.transaction) {
                Some(at) => places.push(at),
                None => self.unread.push(Flaw::Damaged("the map of its objects lacks a volume")),
            }
        }
        let reads: Vec<_> = places.iter().map(|at| blocks.object(*at, &[VOLUME])).collect();
        // One that is damaged keeps no key from the others.
        for (at, read) in places.iter().zip(join_all(reads).await) {
            match read.map(|bytes| Volume::parse(*at, bytes)) {
                Ok(Some(volume)) => self.volumes.push(volume),
                Ok(None) => self.unread.push(Flaw::Damaged("the superblock of a volume is damaged")),
                Err(flaw) => self.unread.push(flaw),
            }
        }
        Ok(())
    }

    /// Reads the keys of the volumes that can be opened.
    async fn read_keys(&mut self, blocks: &Blocks<'_>, bag: BagPlace, is_software: bool) -> Result<()> {
        let is_encrypted = |volume: &Volume| volume.is_encrypted && volume.refused.is_none();
        if !self.volumes.iter().any(is_encrypted) {
            return Ok(());
        }
        let entries = match key_bag::read(blocks, bag, &self.id, key_bag::OF_CONTAINER).await? {
            Some(entries) => entries,
            None if is_software => return Err(Flaw::Damaged("a key bag has a wrong checksum")),
            None => {
                let volumes = self.volumes.iter_mut().filter(|volume| is_encrypted(volume));
                volumes.for_each(|volume| volume.refused = Some(HARDWARE));
                return Ok(());
            }
        };
        for volume in self.volumes.iter_mut().filter(|volume| is_encrypted(volume)) {
            let of = |kind| entries.iter().find(|one| (one.id, one.kind) == (volume.id, kind));
            volume.key = of(entry::VOLUME_KEY).and_then(|one| Blob::parse(&one.content));
            let Some(place) = of(entry::BAG_OR_OPENER) else { continue };
            let place = BagPlace::at(&place.content, 0);
            match key_bag::read(blocks, place, &volume.id, key_bag::OF_VOLUME).await {
                Ok(Some(bag)) => volume.openers = bag.into_iter().filter_map(opener).take(OPENERS_MAX).collect(),
                Ok(None) | Err(_) => volume.refused = Some(KEY_BAG),
            }
        }
        Ok(())
    }

    /// The blocks of this container in a device.
    pub(super) fn blocks_of<'a>(&self, part: Part<'a>) -> Blocks<'a> {
        Blocks { part, block_bytes: self.block_bytes, checks: self.checks }
    }

    /// Where the superblock of a volume lies, in bytes from the start of the container.
    pub fn superblock_place(&self, volume: &Volume) -> ByteRange {
        ByteRange::new(volume.block.saturating_mul(self.block_bytes), self.block_bytes)
    }
}

fn opener(entry: Entry) -> Option<Opener> {
    let blob = (entry.kind == entry::BAG_OR_OPENER).then(|| Blob::parse(&entry.content))??;
    Some(Opener { id: entry.id, blob })
}

/// The last superblock in the area of checkpoints.
async fn last_checkpoint(blocks: &Blocks<'_>, head: &[u8]) -> Result<Vec<u8>> {
    let (count, first) = (u32_at(head, 104), u64_at(head, 112));
    let len = u64::from(count);
    if count & APART != 0 || count == 0 || len * blocks.block_bytes > CHECKPOINT_BYTES_MAX {
        return Err(Flaw::Unsupported("an area of checkpoints that is long, or in several pieces,".to_owned()));
    }
    let is_superblock =
        |block: &&[u8]| block.get(32..36) == Some(MAGIC) && kind(block) == CONTAINER && blocks.is_whole(block);
    // A damaged block may be another one.
    let reads = match blocks.read(first, len).await {
        Ok(area) => vec![Ok(area)],
        Err(_) => {
            let reads: Vec<_> = (0..len).map(|number| blocks.read(first.saturating_add(number), 1)).collect();
            join_all(reads).await
        }
    };
    let mut last: Option<Vec<u8>> = None;
    for area in reads.into_iter().flatten() {
        for block in area.chunks_exact(blocks.block_bytes as usize).filter(is_superblock) {
            if last.as_ref().is_none_or(|last| u64_at(last, 16) < u64_at(block, 16)) {
                last = Some(block.to_vec());
            }
        }
    }
    last.ok_or(Flaw::Damaged("no superblock of the container is whole"))
}
