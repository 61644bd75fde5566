//! Group descriptors: the positions of a group's bitmaps and inodes.

use super::superblock::Layout;
use cheetah_device::le::{u16_at, u32_at};

/// No inode of the group has ever been used.
const INODES_UNUSED: u16 = 0x1;

/// A parsed group descriptor. Block numbers are unchecked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Block of the block bitmap.
    pub block_bitmap: u64,
    /// Block of the inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
    /// The number of leading inodes that were ever used, if the descriptor records it.
    pub inodes_used: Option<u32>,
}

impl Group {
    /// Parses a descriptor.
    pub fn parse(bytes: &[u8], layout: &Layout) -> Self {
        let wide = layout.descriptor_bytes >= 64;
        let number = |low: usize, high: usize| {
            u64::from(u32_at(bytes, low)) | if wide { u64::from(u32_at(bytes, high)) << 32 } else { 0 }
        };
        let unused = u32::from(u16_at(bytes, 0x1c)) | if wide { u32::from(u16_at(bytes, 0x32)) << 16 } else { 0 };
        let used = match u16_at(bytes, 0x12) & INODES_UNUSED {
            0 => layout.group_inodes.saturating_sub(unused),
            _ => 0,
        };
        Self {
            block_bitmap: number(0x0, 0x20),
            inode_bitmap: number(0x4, 0x24),
            inode_table: number(0x8, 0x28),
            inodes_used: layout.has_checksums.then_some(used),
        }
    }
}

/// The number of inodes up to and including the last one in use.
pub(super) fn used_in(bitmap: &[u8], group_inodes: u32) -> u32 {
    let last = bitmap.iter().rposition(|byte| *byte != 0);
    let used = last.map_or(0, |at| at * 8 + 8 - bitmap.get(at).map_or(0, |byte| byte.leading_zeros() as usize));
    u32::try_from(used).unwrap_or(u32::MAX).min(group_inodes)
}
