//! From inodes to blocks: trees of extents, and blocks of block numbers.

use smallvec::SmallVec;

use super::inode::{Form, Inode};
use super::superblock::Layout;
use crate::le::{le16, le32};

const EXTENTS_MAGIC: u16 = 0xf30a;
/// Bytes in an extent, in an index of extents, and in the header of both.
const ENTRY_BYTES: usize = 12;
/// A tree with blocks of 1 KiB need not be deeper to hold the longest file.
const DEPTH_MAX: u16 = 5;
/// Longer extents are set aside for content that has not been written; it is read as zeros.
const WRITTEN_BLOCKS_MAX: u16 = 0x8000;
const DIRECT: u64 = 12;

/// Consecutive blocks with consecutive content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Which block of the content is in the first of them.
    pub at: u32,
    /// How many.
    pub count: u32,
    /// The first.
    pub block: u64,
}

/// What is in a block on the way to the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// A node of a tree of extents, so far above the leaves.
    Extents { depth: u16 },
    /// Block numbers: on level 1 those of content, from block `at` of it on; of `blocks` in all.
    Pointers { level: u32, at: u32, blocks: u32 },
}

/// What an inode or a node says.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// Where content is. Checked to be in the volume.
    pub runs: SmallVec<[Run; 2]>,
    /// Where more of the map is.
    pub nodes: SmallVec<[(u64, Node); 2]>,
}

impl Mapped {
    /// Reads the map in an inode.
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
                    let block = u64::from(le32(pointer, 0));
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

    /// Reads a block of the map.
    pub fn of_node(bytes: &[u8], node: Node, layout: &Layout) -> Self {
        let mut mapped = Self::default();
        match node {
            Node::Extents { depth } => mapped.extents(bytes, Some(depth), layout),
            Node::Pointers { level: 0 | 1, at, blocks } => mapped.pointers(bytes, at, blocks, layout),
            Node::Pointers { level, at, blocks } => {
                let each = (layout.block_bytes / 4).pow(level - 1);
                for (index, pointer) in (0u64..).zip(bytes.chunks_exact(4)) {
                    let block = u64::from(le32(pointer, 0));
                    let Ok(at) = u32::try_from(u64::from(at) + index * each) else { break };
                    if block > 0 && at < blocks {
                        mapped.nodes.push((block, Node::Pointers { level: level - 1, at, blocks }));
                    }
                }
            }
        }
        mapped
    }

    /// Whole content in runs that join where they can.
    fn pointers(&mut self, bytes: &[u8], at: u32, blocks: u32, layout: &Layout) {
        for (at, pointer) in (at..blocks).zip(bytes.chunks_exact(4)) {
            let block = u64::from(le32(pointer, 0));
            if layout.range(block, 1).is_none() {
                continue;
            }
            match self.runs.last_mut() {
                Some(run)
                    if run.block + u64::from(run.count) == block
                        && u64::from(run.at) + u64::from(run.count) == at.into() =>
                {
                    run.count += 1;
                }
                _ => self.runs.push(Run { at, count: 1, block }),
            }
        }
    }

    /// A node of a tree of extents, which is to be `depth` above the leaves; if that is known.
    fn extents(&mut self, bytes: &[u8], depth: Option<u16>, layout: &Layout) {
        let found = le16(bytes, 6);
        if le16(bytes, 0) != EXTENTS_MAGIC || found > DEPTH_MAX || depth.is_some_and(|depth| depth != found) {
            return;
        }
        for entry in bytes.chunks_exact(ENTRY_BYTES).skip(1).take(le16(bytes, 2).into()) {
            match found.checked_sub(1) {
                None => self.extent(entry, layout),
                Some(depth) => {
                    let block = u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32;
                    self.nodes.push((block, Node::Extents { depth }));
                }
            }
        }
    }

    fn extent(&mut self, entry: &[u8], layout: &Layout) {
        let (count, block) = (le16(entry, 4), u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32);
        if (1..=WRITTEN_BLOCKS_MAX).contains(&count) && layout.range(block, count.into()).is_some() {
            self.runs.push(Run { at: le32(entry, 0), count: count.into(), block });
        }
    }
}
