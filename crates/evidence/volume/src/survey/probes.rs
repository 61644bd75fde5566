//! The ranges that tools read of a device to recognise it.

use std::collections::BTreeSet;

use cheetah_device::ByteRange;

use super::{SurveyPlan, Surveyor, WINDOW_BYTES};

/// A YAFFS2 block, as The Sleuth Kit guesses it: 64 chunks of 2,048 bytes and 64 spare ones.
const BLOCK_BYTES: u64 = 64 * CHUNK_BYTES;
const CHUNK_BYTES: u64 = 2048 + SPARE_BYTES;
const SPARE_BYTES: u64 = 64;
/// The offset of the spare bytes examined first in each block, those of its tenth chunk.
const SPARE: u64 = 10 * CHUNK_BYTES - SPARE_BYTES;
/// The sectors of the spare bytes of a block's first and tenth chunk.
const FIRST_SECTOR: u64 = 2048;
const SPARE_SECTOR: u64 = SPARE - SPARE % 512;
/// It examines this many blocks, or until it has found this many that hold data.
const BLOCKS_MAX: u64 = 400;
const FILLED_MAX: usize = 10;
/// The minimum number of blocks it therefore examines.
const BLOCKS_LEAST: u64 = FILLED_MAX as u64;
/// Each further round examines eight times as many blocks as all before.
const FURTHER: u64 = 8;

/// Predicts how The Sleuth Kit (`fls`, `icat` and so on without `-f`) recognises file systems. After recognising one in
/// a volume, it still looks for YAFFS2, from the start of the device, in steps of 132 KiB. On a disk whose start was
/// mostly never written, that is 400 reads, each of which waits for the last.
///
/// A surveyor like those of file systems, whose volume is the device. It reads the bytes that decide how far the tool
/// will go, then fetches what the tool reads up to there, with priority, since the tool does this before anything else.
#[derive(Debug)]
pub struct ProbeSurveyor {
    device_bytes: u64,
    /// Blocks examined, or requested for examination.
    examined: u64,
    /// Of these, those that hold data.
    filled: BTreeSet<u64>,
    /// Blocks whose ranges have been fetched for the tool.
    fetched: u64,
}

impl ProbeSurveyor {
    /// Predicts reads of a device of `device_bytes`.
    pub fn new(device_bytes: u64) -> Self {
        Self { device_bytes, examined: 0, filled: BTreeSet::new(), fetched: 0 }
    }

    /// Examines the next blocks. The tool reads the first few in any case.
    fn examine(&mut self, count: u64, plan: &mut SurveyPlan) {
        let blocks = (self.device_bytes / BLOCK_BYTES).min(BLOCKS_MAX);
        let next = (self.examined + count).min(blocks);
        for block in self.examined..next {
            let spare = block * BLOCK_BYTES + SPARE_SECTOR;
            plan.read(if block < BLOCKS_LEAST { self.window(spare) } else { ByteRange::new(spare, 512) });
        }
        self.examined = next;
    }

    /// Fetches the other ranges that the tool reads of the examined blocks.
    fn fetch(&mut self, plan: &mut SurveyPlan) {
        let last = self.filled.iter().nth(FILLED_MAX - 1);
        let end = last.map_or(self.examined, |last| last + 1);
        for block in self.fetched..end {
            if block >= BLOCKS_LEAST {
                plan.read(self.window(block * BLOCK_BYTES + SPARE_SECTOR));
            }
            if self.filled.contains(&block) {
                plan.read(self.window(block * BLOCK_BYTES + FIRST_SECTOR));
            }
        }
        self.fetched = end;
    }

    fn window(&self, offset: u64) -> ByteRange {
        ByteRange::between(offset, (offset + WINDOW_BYTES).min(self.device_bytes))
    }
}

impl Surveyor for ProbeSurveyor {
    fn name(&self) -> &'static str {
        "probes"
    }

    fn start(&mut self, plan: &mut SurveyPlan) {
        // A virtual disk has a signature at its end.
        plan.read(ByteRange::between(self.device_bytes.saturating_sub(512), self.device_bytes));
        self.examine(BLOCKS_LEAST, plan);
    }

    fn arrived(&mut self, range: ByteRange, bytes: &[u8], _: &mut SurveyPlan) {
        if range.offset % BLOCK_BYTES != SPARE_SECTOR {
            return;
        }
        let inside = (SPARE - SPARE_SECTOR) as usize;
        let spare = bytes.get(inside..inside + SPARE_BYTES as usize).unwrap_or_default();
        if spare.iter().any(|&byte| byte != 0 && byte != 0xff) {
            self.filled.insert(range.offset / BLOCK_BYTES);
        }
    }

    fn idle(&mut self, plan: &mut SurveyPlan) {
        self.fetch(plan);
        if self.filled.len() < FILLED_MAX {
            self.examine(FURTHER * self.examined, plan);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::drive;

    fn probed(bytes: &[u8]) -> Vec<ByteRange> {
        let mut probes = ProbeSurveyor::new(bytes.len() as u64);
        let probed = drive(&mut probes, 1000, |range| bytes.get(range.offset as usize..range.end() as usize));
        assert!(probed.ended && probed.outside.is_empty());
        probed.asked().collect()
    }

    #[test]
    fn the_search_ends_after_ten_blocks_with_data() {
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
    fn only_a_limited_part_of_the_device_is_examined() {
        let bytes: u64 = probed(&vec![0; 80 << 20]).iter().map(|range| range.len).sum();
        assert_eq!(bytes, 400 * WINDOW_BYTES + 390 * 512 + 512);
        assert_eq!(probed(&[0; 100]), [ByteRange::new(0, 100)]);
        assert_eq!(probed(&[]), []);
    }
}
