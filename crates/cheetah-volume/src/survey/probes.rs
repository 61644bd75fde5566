//! What tools read of a device only to find out what it is.

use std::collections::BTreeSet;

use cheetah_device::ByteRange;

use super::{Plan, Surveyor, WINDOW_BYTES};

/// A block of YAFFS2, as The Sleuth Kit guesses: 64 chunks of 2,048 bytes and 64 spare ones.
const BLOCK_BYTES: u64 = 64 * CHUNK_BYTES;
const CHUNK_BYTES: u64 = 2048 + SPARE_BYTES;
const SPARE_BYTES: u64 = 64;
/// The spare bytes that are looked at first in each block, those of its tenth chunk.
const SPARE: u64 = 10 * CHUNK_BYTES - SPARE_BYTES;
/// The sectors that the spare bytes of a block's first and tenth chunk are in.
const FIRST_SECTOR: u64 = 2048;
const SPARE_SECTOR: u64 = SPARE - SPARE % 512;
/// It looks into so many blocks, or until it has seen so many that hold something.
const BLOCKS_MAX: u64 = 400;
const FILLED_MAX: usize = 10;
/// So it looks into so many at least.
const BLOCKS_LEAST: u64 = FILLED_MAX as u64;
/// Later, eight times as many blocks are looked into at once as were already.
const FURTHER: u64 = 8;

/// Foresees how The Sleuth Kit (`fls`, `icat` and so on without `-f`) tells file systems apart: having recognised one in a
/// volume, it goes on to look for YAFFS2, from the start of the device, in steps of 132 KiB. On a disk that starts with
/// much that was never written, these are 400 reads, each of which waits for the last.
///
/// It is a surveyor as those of file systems are; its volume is the device. It looks at the bytes that decide how far the
/// tool will go, and then has brought near what that reads up to there: soon, for the tool does this before anything else.
#[derive(Debug)]
pub struct Probes {
    device_bytes: u64,
    /// Blocks that were looked into or are about to be.
    looked: u64,
    /// Of these, those that hold something.
    filled: BTreeSet<u64>,
    /// Blocks that the tool will look into, as far as is known.
    near: u64,
}

impl Probes {
    /// For a device of so many bytes.
    pub fn new(device_bytes: u64) -> Self {
        Self { device_bytes, looked: 0, filled: BTreeSet::new(), near: 0 }
    }

    /// Looks into the next blocks. The tool reads the first few in any case.
    fn look(&mut self, count: u64, plan: &mut Plan) {
        let blocks = (self.device_bytes / BLOCK_BYTES).min(BLOCKS_MAX);
        let next = (self.looked + count).min(blocks);
        for block in self.looked..next {
            let spare = block * BLOCK_BYTES + SPARE_SECTOR;
            plan.read(if block < BLOCKS_LEAST { self.window(spare) } else { ByteRange::new(spare, 512) });
        }
        self.looked = next;
    }

    /// Brings what else the tool reads of the blocks that were looked into.
    fn bring(&mut self, plan: &mut Plan) {
        let last = self.filled.iter().nth(FILLED_MAX - 1);
        let end = last.map_or(self.looked, |last| last + 1);
        for block in self.near..end {
            if block >= BLOCKS_LEAST {
                plan.read(self.window(block * BLOCK_BYTES + SPARE_SECTOR));
            }
            if self.filled.contains(&block) {
                plan.read(self.window(block * BLOCK_BYTES + FIRST_SECTOR));
            }
        }
        self.near = end;
    }

    fn window(&self, offset: u64) -> ByteRange {
        ByteRange::between(offset, (offset + WINDOW_BYTES).min(self.device_bytes))
    }
}

impl Surveyor for Probes {
    fn name(&self) -> &'static str {
        "probes"
    }

    fn start(&mut self, plan: &mut Plan) {
        // A virtual disk says at its end that it is one.
        plan.read(ByteRange::between(self.device_bytes.saturating_sub(512), self.device_bytes));
        self.look(BLOCKS_LEAST, plan);
    }

    fn arrived(&mut self, range: ByteRange, bytes: &[u8], _: &mut Plan) {
        if range.offset % BLOCK_BYTES != SPARE_SECTOR {
            return;
        }
        let inside = (SPARE - SPARE_SECTOR) as usize;
        let spare = bytes.get(inside..inside + SPARE_BYTES as usize).unwrap_or_default();
        if spare.iter().any(|&byte| byte != 0 && byte != 0xff) {
            self.filled.insert(range.offset / BLOCK_BYTES);
        }
    }

    fn idle(&mut self, plan: &mut Plan) {
        self.bring(plan);
        if self.filled.len() < FILLED_MAX {
            self.look(FURTHER * self.looked, plan);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::offline::drive;

    fn probed(bytes: &[u8]) -> Vec<ByteRange> {
        let mut probes = Probes::new(bytes.len() as u64);
        let probed = drive(&mut probes, 1000, |range| bytes.get(range.offset as usize..range.end() as usize));
        assert!(probed.ended && probed.outside.is_empty());
        probed.asked().collect()
    }

    #[test]
    fn ends_where_ten_blocks_were_filled() {
        let last = |bytes: &[u8]| {
            probed(bytes).iter().filter(|range| range.len == WINDOW_BYTES).map(|range| range.offset).max()
        };
        assert_eq!(last(&vec![1; 8 << 20]), Some(9 * BLOCK_BYTES + SPARE_SECTOR));
        let mut late = vec![0xff; 64 << 20];
        late[32 << 20..].fill(7);
        let first = (32_u64 << 20).div_ceil(BLOCK_BYTES);
        assert_eq!(last(&late), Some((first + 9) * BLOCK_BYTES + SPARE_SECTOR));
    }

    #[test]
    fn nothing_but_a_bounded_part_is_looked_at() {
        let bytes: u64 = probed(&vec![0; 80 << 20]).iter().map(|range| range.len).sum();
        assert_eq!(bytes, 400 * WINDOW_BYTES + 390 * 512 + 512);
        assert_eq!(probed(&[0; 100]), [ByteRange::new(0, 100)]);
        assert_eq!(probed(&[]), []);
    }
}
