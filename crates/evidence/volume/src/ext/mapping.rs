//! Content maps: extent trees, and indirect blocks.

use smallvec::SmallVec;

use super::inode::{Form, Inode};
use super::superblock::Layout;
use cheetah_device::le::{u16_at, u32_at};

const EXTENTS_MAGIC: u16 = 0xf30a;
/// The size of an extent, of an index entry, and of the header of both.
const ENTRY_BYTES: usize = 12;
/// The maximum depth of a tree: enough for the longest file with blocks of 1 KiB.
const DEPTH_MAX: u16 = 5;
/// The maximum length of an initialised extent; longer ones are preallocated and read as zeros.
const WRITTEN_BLOCKS_MAX: u16 = 0x8000;
const DIRECT: u64 = 12;

/// A run of consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The content's block number of the first.
    pub at: u32,
    /// The number of blocks.
    pub count: u32,
    /// The first block on the volume.
    pub block: u64,
}

/// The kind of a map block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// A node of an extent tree, at this height above the leaves.
    Extents { depth: u16 },
    /// An indirect block; level 1 lists content blocks from number `at`, of `blocks` in total.
    Pointers { level: u32, at: u32, blocks: u32 },
}

/// The entries of an inode or a node.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// Content runs, checked to lie within the volume.
    pub runs: SmallVec<[Run; 2]>,
    /// Further map blocks.
    pub nodes: SmallVec<[(u64, Node); 2]>,
}

impl Mapped {
    /// Parses the map in an inode.
    pub fn of_inode(inode: &Inode<'_>, layout: &Layout) -> Self {
        let mut mapped = Self::default();
        match inode.form {
            Form::Inline => {}
            Form::Extents => mapped.extents(inode.map, None, layout),
            Form::Pointers => {
                let blocks = u32::try_from(inode.size.div_ceil(layout.block_bytes)).unwrap_or(u32::MAX);
                let (direct, indirect) = inode.map.split_at_checked(4 * DIRECT as usize).unwrap_or_default();
                mapped.pointers(direct, 0, blocks, layout);
                let mut at = DIRECT;
                for (level, pointer) in (1..).zip(indirect.chunks_exact(4)) {
                    let block = u64::from(u32_at(pointer, 0));
                    if block > 0 && at < u64::from(blocks) {
                        let at = u32::try_from(at).unwrap_or(u32::MAX);
                        mapped.nodes.push((block, Node::Pointers { level, at, blocks }));
                    }
                    at += (layout.block_bytes / 4).pow(level);
                }
            }
        }
        mapped
    }

    /// Parses a map block.
    pub fn of_node(bytes: &[u8], node: Node, layout: &Layout) -> Self {
        let mut mapped = Self::default();
        match node {
            Node::Extents { depth } => mapped.extents(bytes, Some(depth), layout),
            Node::Pointers { level: 0 | 1, at, blocks } => mapped.pointers(bytes, at, blocks, layout),
            Node::Pointers { level, at, blocks } => {
                let each = (layout.block_bytes / 4).pow(level - 1);
                for (index, pointer) in (0u64..).zip(bytes.chunks_exact(4)) {
                    let block = u64::from(u32_at(pointer, 0));
                    let Ok(at) = u32::try_from(u64::from(at) + index * each) else { break };
                    if block > 0 && at < blocks {
                        mapped.nodes.push((block, Node::Pointers { level: level - 1, at, blocks }));
                    }
                }
            }
        }
        mapped
    }

    /// Appends a run, coalescing it with the last if adjacent.
    fn pointers(&mut self, bytes: &[u8], at: u32, blocks: u32, layout: &Layout) {
        for (at, pointer) in (at..blocks).zip(bytes.chunks_exact(4)) {
            let block = u64::from(u32_at(pointer, 0));
            if layout.range(block, 1).is_none() {
                continue;
            }
            match self.runs.last_mut() {
                Some(run)
                    if run.block + u64::from(run.count) == block
                        && u64::from(run.at) + u64::from(run.count) == u64::from(at) =>
                {
                    run.count += 1;
                }
                _ => self.runs.push(Run { at, count: 1, block }),
            }
        }
    }

    /// Parses a node of an extent tree, at height `depth` if known.
    fn extents(&mut self, bytes: &[u8], depth: Option<u16>, layout: &Layout) {
        let found = u16_at(bytes, 6);
        if u16_at(bytes, 0) != EXTENTS_MAGIC || found > DEPTH_MAX || depth.is_some_and(|depth| depth != found) {
            return;
        }
        for entry in bytes.chunks_exact(ENTRY_BYTES).skip(1).take(u16_at(bytes, 2).into()) {
            match found.checked_sub(1) {
                None => self.extent(entry, layout),
                Some(depth) => {
                    let block = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
                    self.nodes.push((block, Node::Extents { depth }));
                }
            }
        }
    }

    fn extent(&mut self, entry: &[u8], layout: &Layout) {
        let (count, block) = (u16_at(entry, 4), u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32);
        if (1..=WRITTEN_BLOCKS_MAX).contains(&count) && layout.range(block, count.into()).is_some() {
            self.runs.push(Run { at: u32_at(entry, 0), count: count.into(), block });
        }
    }
}
