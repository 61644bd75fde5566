//! What a store says of the blocks of its volume.

use std::collections::BTreeMap;

use cheetah_device::le::{u32_at, u64_at};

use super::bitmap::Bitmap;
use super::block::BLOCK_HEADER_BYTES;
use super::refused::{Damage, Defect, Part};
use super::{BLOCK_BYTES, SECTOR_BYTES};

const DESCRIPTOR_BYTES: usize = 32;

const FORWARDER: u32 = 1;
const OVERLAY: u32 = 2;
const NOT_USED: u32 = 4;
/// The flags that are known to occur; what the others mean does not matter for reading.
const FLAGS: u32 = 0xff;

/// What a store says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Store {
    /// Where the content of a block is, by the offset of the block.
    blocks: BTreeMap<u64, Content>,
    /// The sectors of blocks that were written to the shadow copy itself.
    overlays: BTreeMap<u64, Overlay>,
    /// Which block is where another one was: forwarders in force, by their target.
    moved: BTreeMap<u64, u64>,
    /// Which blocks were neither in use then, nor before. Of the newest store only.
    pub unused: Bitmap,
}

/// Where the content of a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// It is kept at this offset of the volume.
    Kept(u64),
    /// It is where the block at this offset was.
    Moved(u64),
    /// It was moved away and back. What libvshadow reads of such a block is not what was there.
    MovedBack,
}

/// Sectors of a block that are read elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overlay {
    /// The offset of a block of the volume, in which they have the same places.
    pub at: u64,
    /// One bit for each, the lowest first.
    pub sectors: u32,
}

impl Overlay {
    /// Counts the bytes that it has of a block. Only the first `block_bytes` of the block belong to the shadow copy.
    fn bytes_in(self, block_bytes: u64) -> u64 {
        let sectors = (0..BLOCK_BYTES.min(block_bytes)).step_by(SECTOR_BYTES as usize);
        let written = sectors.filter(|at| self.sectors >> (at / SECTOR_BYTES) & 1 == 1);
        written.map(|at| SECTOR_BYTES.min(block_bytes - at)).sum()
    }
}

/// The bounds of what a descriptor may name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The size of the volume, in bytes.
    pub volume_bytes: u64,
    /// The size of the shadow copy, in bytes.
    pub copy_bytes: u64,
}

/// An entry of the list of a store.
#[derive(Debug, Clone, Copy)]
struct Descriptor {
    original: u64,
    relative: u64,
    kept: u64,
    flags: u32,
    sectors: u32,
}

impl Descriptor {
    fn parse(bytes: &[u8]) -> Self {
        let [original, relative, kept] = [0, 8, 16].map(|at| u64_at(bytes, at));
        Self { original, relative, kept, flags: u32_at(bytes, 24), sectors: u32_at(bytes, 28) }
    }

    fn is(self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// What is wrong with it, if something is.
    fn defect(self, bounds: Bounds) -> Option<Damage> {
        let is_place = |at: u64| at.is_multiple_of(BLOCK_BYTES) && at < bounds.copy_bytes;
        let is_kept_inside = self.kept.checked_add(BLOCK_BYTES).is_some_and(|end| end <= bounds.volume_bytes);
        if self.flags > FLAGS || self.is(FORWARDER) && self.is(OVERLAY) {
            return Some(Damage::Flags);
        }
        if !is_place(self.original) {
            return Some(Damage::Original);
        }
        match self.is(FORWARDER) {
            true => (!is_place(self.relative)).then_some(Damage::Target),
            false => (!is_kept_inside).then_some(Damage::Content),
        }
    }
}

impl Store {
    /// Adds the descriptors of a block of the list, which was read at `at`.
    pub fn add(&mut self, block: &[u8], at: u64, bounds: Bounds) -> Result<(), Defect> {
        let descriptors = block.get(BLOCK_HEADER_BYTES..).unwrap_or_default().chunks_exact(DESCRIPTOR_BYTES);
        let places = (at + BLOCK_HEADER_BYTES as u64..).step_by(DESCRIPTOR_BYTES);
        for (place, bytes) in places.zip(descriptors) {
            let descriptor = Descriptor::parse(bytes);
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            if is_empty || descriptor.is(NOT_USED) {
                continue;
            }
            if let Some(why) = descriptor.defect(bounds) {
                return Err(Defect::Damaged { part: Part::Descriptor, at: place, why });
            }
            self.apply(descriptor);
        }
        Ok(())
    }

    /// Adds a descriptor, in the order of the list.
    fn apply(&mut self, descriptor: Descriptor) {
        let Descriptor { original, relative, kept, sectors, .. } = descriptor;
        if descriptor.is(OVERLAY) {
            self.overlays.entry(original).or_insert(Overlay { at: kept, sectors: 0 }).sectors |= sectors;
            return;
        }
        // What is kept of a block to which another one was moved is that one.
        let moved_from = self.moved.remove(&original);
        let block = moved_from.unwrap_or(original);
        if !descriptor.is(FORWARDER) {
            self.blocks.insert(block, Content::Kept(kept));
        } else if block != relative {
            self.blocks.insert(block, Content::Moved(relative));
            self.moved.insert(relative, block);
        } else if self.blocks.get(&block) == Some(&Content::Moved(original)) {
            self.blocks.insert(block, Content::MovedBack);
        }
    }

    /// The number of blocks and overlays of which it says something. A block that was moved counts twice.
    pub fn entries(&self) -> usize {
        self.blocks.len() + self.overlays.len() + self.moved.len()
    }

    /// Where the content of the block at this offset is, if it says that.
    pub fn content(&self, block: u64) -> Option<Content> {
        self.blocks.get(&block).copied()
    }

    /// The sectors of the block at this offset that are elsewhere.
    pub fn overlay(&self, block: u64) -> Option<Overlay> {
        self.overlays.get(&block).copied()
    }

    /// Whether the block at this offset was not in use, so that nothing was kept of it.
    pub fn is_unused(&self, block: u64) -> bool {
        self.unused.has(block / BLOCK_BYTES) && !self.moved.contains_key(&block)
    }

    /// How many bytes of a shadow copy of this size were not in use and are nowhere, so that they read as zeros. For the newest store.
    pub fn lost_bytes(&self, copy_bytes: u64) -> u64 {
        let is_lost = |block: u64| self.is_unused(block) && !self.blocks.contains_key(&block);
        let blocks = copy_bytes.div_ceil(BLOCK_BYTES);
        let moved = self.moved.keys().filter(|block| !self.blocks.contains_key(*block));
        let elsewhere = self.blocks.keys().chain(moved).filter(|block| self.unused.has(*block / BLOCK_BYTES)).count();
        let in_blocks = self.unused.count(blocks).saturating_sub(elsewhere as u64) * BLOCK_BYTES;
        let beyond = blocks.saturating_sub(1) * BLOCK_BYTES;
        let beyond_bytes = if is_lost(beyond) { blocks * BLOCK_BYTES - copy_bytes } else { 0 };
        let written = self.overlays.iter().filter(|(block, _)| is_lost(**block));
        let written_bytes: u64 = written.map(|(block, overlay)| overlay.bytes_in(copy_bytes - *block)).sum();
        in_blocks.saturating_sub(beyond_bytes).saturating_sub(written_bytes)
    }
}
