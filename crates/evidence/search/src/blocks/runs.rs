//! Runs: blocks of a known file that follow each other in the file and on the disk.
//!
//! One block of a file can be part of another that nobody knows, such as a font within documents. Two that follow each other in the
//! file and on the disk tell much more, so a single one is counted and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::BLOCK_BYTES;
use super::known::{KnownFiles, Place};
use crate::hit::Hit;

/// The fewest blocks of a run.
const BLOCKS_MIN: u64 = 2;

/// Blocks of a known file that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownRun {
    /// The offset in the device.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The file, as an index of [`KnownFiles::files`].
    pub file: usize,
    /// The offset in the file.
    pub file_offset: u64,
}

impl KnownRun {
    const fn end(&self) -> u64 {
        self.offset + self.len
    }

    const fn blocks(&self) -> u64 {
        self.len / BLOCK_BYTES as u64
    }
}

/// Makes runs of blocks, which are found in the order of their offsets.
pub struct KnownRuns {
    known: Arc<KnownFiles>,
    /// Runs that the next block may continue.
    open: Vec<KnownRun>,
    found: KnownFound,
}

/// What was found of known files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownFound {
    /// The runs, in the order of their offsets.
    pub runs: Vec<KnownRun>,
    /// Of each file, by its index, the numbers of its blocks in runs, wherever they were found.
    pub blocks: BTreeMap<usize, BTreeSet<u64>>,
    /// Blocks that were found alone.
    pub singles: u64,
}

impl KnownRuns {
    /// None yet.
    pub fn new(known: Arc<KnownFiles>) -> Self {
        Self { known, open: Vec::new(), found: KnownFound::default() }
    }

    /// Adds a block that was found.
    pub fn add(&mut self, hit: &Hit) {
        self.close(|run| run.end() < hit.offset);
        for Place { file, block } in self.known.places(&hit.bytes) {
            let (file, file_offset) = (*file as usize, u64::from(*block) * BLOCK_BYTES as u64);
            let goes_on = |run: &&mut KnownRun| {
                run.file == file && run.end() == hit.offset && run.file_offset + run.len == file_offset
            };
            match self.open.iter_mut().find(goes_on) {
                Some(run) => run.len += BLOCK_BYTES as u64,
                None => self.open.push(KnownRun { offset: hit.offset, len: BLOCK_BYTES as u64, file, file_offset }),
            }
        }
    }

    /// Returns what was found.
    pub fn finish(mut self) -> KnownFound {
        self.close(|_| true);
        self.found.runs.sort_by_key(|run| (run.offset, run.file, run.file_offset));
        self.found
    }

    fn close(&mut self, is_complete: impl Fn(&KnownRun) -> bool) {
        let (complete, open): (Vec<_>, Vec<_>) = self.open.drain(..).partition(is_complete);
        self.open = open;
        for run in complete {
            if run.blocks() < BLOCKS_MIN {
                self.found.singles += 1;
                continue;
            }
            let first = run.file_offset / BLOCK_BYTES as u64;
            self.found.blocks.entry(run.file).or_default().extend(first..first + run.blocks());
            self.found.runs.push(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;
    use crate::encoding::TextEncoding;

    fn hit(offset: u64, bytes: &[u8]) -> Hit {
        let bytes = bytes.to_vec();
        Hit { offset, pattern: 0, encoding: TextEncoding::Utf8, bytes, before: Vec::new(), after: Vec::new() }
    }

    /// The runs of blocks of a file, given by their offsets and numbers, and the blocks found alone.
    fn runs(known: &Arc<KnownFiles>, content: &[u8], found: &[(u64, usize)]) -> (Vec<(u64, u64, usize, u64)>, u64) {
        let mut runs = KnownRuns::new(known.clone());
        let blocks: Vec<&[u8]> = content.chunks(BLOCK_BYTES).collect();
        found.iter().for_each(|(offset, block)| runs.add(&hit(*offset, blocks[*block])));
        let found = runs.finish();
        let runs = found.runs.iter().map(|run| (run.offset, run.len, run.file, run.file_offset));
        (runs.collect(), found.singles)
    }

    #[test]
    fn blocks_that_follow_each_other_in_the_file_and_on_the_disk_are_a_run() {
        let content = noise(3, 5 * BLOCK_BYTES + 100);
        let mut known = KnownFiles::default();
        known.add("a", &content[..]).unwrap();
        let known = Arc::new(known.without_common_blocks());
        assert_eq!((known.files()[0].blocks, known.keys().len()), (5, 5));
        let found = [(0, 0), (4096, 1), (8192, 2), (20_480, 3), (24_576, 4), (100_352, 4)];
        assert_eq!(runs(&known, &content, &found), (vec![(0, 12_288, 0, 0), (20_480, 8192, 0, 12_288)], 1));
        // Blocks in another order, and with a sector between them, are alone.
        assert_eq!(runs(&known, &content, &[(0, 1), (4096, 0), (8704, 1)]), (vec![], 3));
    }

    #[test]
    fn a_block_of_two_files_begins_a_run_of_each_and_blocks_of_many_files_are_left_out() {
        let (shared, own) = (noise(4, 2 * BLOCK_BYTES), noise(5, BLOCK_BYTES));
        let mut known = KnownFiles::default();
        known.add("a", &[&shared[..], &own].concat()[..]).unwrap();
        known.add("b", &[&own[..], &shared].concat()[..]).unwrap();
        let mut found = KnownRuns::new(Arc::new(known.without_common_blocks()));
        for (nth, block) in shared.chunks(BLOCK_BYTES).enumerate() {
            found.add(&hit(4096 * nth as u64, block));
        }
        let found = found.finish();
        let files: Vec<_> = found.runs.iter().map(|run| (run.file, run.file_offset, run.len)).collect();
        assert_eq!(files, [(0, 0, 8192), (1, 4096, 8192)]);
        assert_eq!(found.blocks, [(0, [0, 1].into()), (1, [1, 2].into())].into());

        let mut known = KnownFiles::default();
        for number in 0..20 {
            known.add(&number.to_string(), &[&shared[..], &noise(100 + 2 * number, BLOCK_BYTES)].concat()[..]).unwrap();
        }
        let known = known.without_common_blocks();
        assert_eq!((known.keys().len(), known.files()[7].blocks), (20, 1));
    }

    #[test]
    fn files_of_zeros_and_files_shorter_than_a_block_have_no_blocks() {
        let mut known = KnownFiles::default();
        known.add("zeros", &[0; 10 * BLOCK_BYTES][..]).unwrap();
        known.add("short", &noise(1, BLOCK_BYTES - 1)[..]).unwrap();
        let known = known.without_common_blocks();
        assert!(known.keys().is_empty() && known.files().iter().all(|file| file.blocks == 0));
    }
}
