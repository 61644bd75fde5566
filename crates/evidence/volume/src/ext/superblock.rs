//! The superblock: the layout of the file system.

use cheetah_device::ByteRange;

use cheetah_device::le::{u16_at, u32_at};

/// Its offset in the volume, and its length.
const AT: usize = 1024;
const BYTES: usize = 1024;
const MAGIC: u16 = 0xef53;

const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_EXTENTS: u32 = 0x40;
const INCOMPAT_64BIT: u32 = 0x80;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const RO_COMPAT_GDT_CSUM: u32 = 0x10;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
const COMPAT_HAS_JOURNAL: u32 = 0x4;

/// The maximum number of groups: 128 TiB in groups of 128 MiB. More indicates damage.
const GROUPS_MAX: u64 = 1 << 20;

/// The layout of the file system. [`parse`](Layout::parse) ensures that no product of these numbers overflows.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The block size: a power of two from 1 to 64 KiB.
    pub block_bytes: u64,
    /// The number of blocks in the volume.
    pub blocks: u64,
    /// The number of block groups.
    pub groups: u32,
    /// The number of inodes per group.
    pub group_inodes: u32,
    /// The size of an inode: a power of two from 128 to a block.
    pub inode_bytes: u64,
    /// The size of a group descriptor: 32, or at least 64.
    pub descriptor_bytes: u64,
    /// Whether group descriptors record the number of unused inodes reliably.
    pub has_checksums: bool,
    /// Its usual name.
    pub name: &'static str,
    first_block: u64,
    group_blocks: u64,
    /// The first block of descriptors that lies in the groups it describes (meta_bg).
    first_meta_group: u64,
    backups: Backups,
}

/// The groups that start with a copy of the superblock.
#[derive(Debug, Clone)]
enum Backups {
    All,
    Powers,
    Two([u32; 2]),
}

impl Layout {
    /// Parses the superblock in the start of a volume; `None` if missing or implausible.
    pub fn parse(start: &[u8]) -> Option<Self> {
        let bytes = start.get(AT..AT + BYTES)?;
        let (compat, incompat, ro_compat) = (u32_at(bytes, 0x5c), u32_at(bytes, 0x60), u32_at(bytes, 0x64));
        let block_shift = u32_at(bytes, 0x18);
        if u16_at(bytes, 0x38) != MAGIC || block_shift > 6 || incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
            return None;
        }
        let wide = incompat & INCOMPAT_64BIT != 0;
        let block_bytes = 1024 << block_shift;
        let blocks = u64::from(u32_at(bytes, 0x4)) | if wide { u64::from(u32_at(bytes, 0x150)) << 32 } else { 0 };
        let (first_block, group_blocks) = (u64::from(u32_at(bytes, 0x14)), u64::from(u32_at(bytes, 0x20)));
        let group_inodes = u32_at(bytes, 0x28);
        let inode_bytes = if u32_at(bytes, 0x4c) == 0 { 128 } else { u64::from(u16_at(bytes, 0x58)) };
        let descriptor_bytes = if wide { u64::from(u16_at(bytes, 0xfe)) } else { 32 };
        let sound = blocks < 1 << 46
            && first_block < blocks
            && group_blocks > 0
            && (1..=block_bytes * 8).contains(&u64::from(group_inodes))
            && (128..=block_bytes).contains(&inode_bytes)
            && inode_bytes.is_power_of_two()
            && (32..=block_bytes).contains(&descriptor_bytes)
            && descriptor_bytes.is_power_of_two();
        let groups = (blocks.checked_sub(first_block)?).div_ceil(group_blocks.max(1));
        if !sound || groups > GROUPS_MAX {
            return None;
        }
        Some(Self {
            block_bytes,
            blocks,
            groups: u32::try_from(groups).ok()?,
            group_inodes,
            inode_bytes,
            descriptor_bytes,
            has_checksums: ro_compat & (RO_COMPAT_GDT_CSUM | RO_COMPAT_METADATA_CSUM) != 0,
            name: if incompat & INCOMPAT_EXTENTS != 0 {
                "ext4"
            } else if compat & COMPAT_HAS_JOURNAL != 0 {
                "ext3"
            } else {
                "ext2"
            },
            first_block,
            group_blocks,
            first_meta_group: if incompat & INCOMPAT_META_BG != 0 { u32_at(bytes, 0x104).into() } else { u64::MAX },
            backups: if compat & COMPAT_SPARSE_SUPER2 != 0 {
                Backups::Two([u32_at(bytes, 0x24c), u32_at(bytes, 0x250)])
            } else if ro_compat & RO_COMPAT_SPARSE_SUPER != 0 {
                Backups::Powers
            } else {
                Backups::All
            },
        })
    }

    /// The size of the volume, in bytes.
    pub fn volume_bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    /// The range of `count` blocks from `block`, if within the volume; block 0 is never referred to.
    pub fn range(&self, block: u64, count: u64) -> Option<ByteRange> {
        let inside = block > 0 && block.checked_add(count)? <= self.blocks;
        inside.then(|| ByteRange::new(block * self.block_bytes, count * self.block_bytes))
    }

    /// The ranges of group descriptors, each with the first group it describes.
    pub fn descriptors(&self) -> Vec<(ByteRange, u32)> {
        let per_block = self.block_bytes / self.descriptor_bytes;
        let blocks = u64::from(self.groups).div_ceil(per_block);
        // The superblock is in block 1 if blocks have 1 KiB, else in block 0.
        let super_block = if self.block_bytes == 1024 { 1 } else { 0 };
        let together = self.range(super_block + 1, blocks.min(self.first_meta_group));
        let mut found: Vec<_> =
            together.filter(|range| !range.is_empty()).map(|range| (range, 0)).into_iter().collect();
        for block in self.first_meta_group.min(blocks)..blocks {
            let group = block * per_block;
            let first = self.first_block + group * self.group_blocks;
            // Block 0 precedes the superblock, even if groups start after it.
            let ahead = u64::from(self.has_superblock(group) || (self.block_bytes == 1024 && first == 0));
            let place = first.checked_add(ahead).and_then(|first| self.range(first, 1));
            found.extend(place.zip(u32::try_from(group).ok()));
        }
        found
    }

    fn has_superblock(&self, group: u64) -> bool {
        let power_of = |base: u64| {
            std::iter::successors(Some(base), |power| power.checked_mul(base))
                .take_while(|power| *power <= group)
                .any(|power| power == group)
        };
        match self.backups {
            _ if group == 0 => true,
            Backups::All => true,
            Backups::Powers => group == 1 || power_of(3) || power_of(5) || power_of(7),
            Backups::Two(groups) => groups.iter().any(|backup| u64::from(*backup) == group),
        }
    }
}
