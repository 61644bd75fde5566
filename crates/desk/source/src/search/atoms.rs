//! Where atoms of rules were found. Blocks become larger if there are too many, so that more files seem to have an atom than do, and
//! never fewer.

use cheetah_device::Coverage;
use cheetah_device::coverage::State;
use cheetah_search::{Batch, Hit, PatternKind, Search};
use serde::Serialize;

/// A block has at least two to the power of this many bytes: a sector.
const SHIFT: u32 = 9;
/// The maximum number of blocks, which take 32 MiB.
const BLOCKS_MAX: usize = 1 << 22;

/// Blocks that are gathered before they are sorted in.
const GATHERED_MAX: usize = 1 << 16;

/// Where atoms of rules were found, and where they may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AtomPlaces {
    /// The blocks that have a byte of one, in order.
    pub blocks: Vec<u64>,
    /// Offset and length of the ranges that were not searched, in order.
    pub gaps: Vec<(u64, u64)>,
    /// A block has two to the power of this many bytes.
    pub shift: u32,
}

/// The atoms that a search has found: the blocks that have a byte of one.
pub struct FoundAtoms {
    /// The pattern of atoms.
    pattern: Option<usize>,
    shift: u32,
    /// In order.
    blocks: Vec<u64>,
    /// In the order in which they were found. Ranges that are searched at once are found in any order.
    gathered: Vec<u64>,
}

impl FoundAtoms {
    /// None yet.
    pub fn new(search: &Search) -> Self {
        let pattern = search.patterns().iter().position(|pattern| pattern.kind == PatternKind::Atom);
        Self { pattern, shift: SHIFT, blocks: Vec::new(), gathered: Vec::new() }
    }

    /// Takes the atoms out of the hits of a batch: they are no results.
    pub fn take(&mut self, batch: &mut Batch) {
        batch.hits.retain(|hit| {
            let is_atom = Some(hit.pattern) == self.pattern;
            if is_atom {
                self.add(hit);
            }
            !is_atom
        });
    }

    fn add(&mut self, hit: &Hit) {
        let last = hit.offset.saturating_add(hit.len().saturating_sub(1));
        for block in hit.offset >> self.shift..=last >> self.shift {
            if self.gathered.last() != Some(&block) {
                self.gathered.push(block);
            }
        }
        if self.gathered.len() >= GATHERED_MAX {
            self.sort_in();
        }
    }

    fn sort_in(&mut self) {
        self.blocks.append(&mut self.gathered);
        // Fast where most are in order.
        self.blocks.sort();
        self.blocks.dedup();
        while self.blocks.len() > BLOCKS_MAX {
            self.shift += 1;
            self.blocks.iter_mut().for_each(|block| *block >>= 1);
            self.blocks.dedup();
        }
    }

    /// The places for what tries the rules: every file that lies in part where nothing was searched is read.
    pub fn places(mut self, coverage: &Coverage) -> AtomPlaces {
        self.sort_in();
        let gaps = [State::Unread, State::Unreadable].into_iter().flat_map(|state| coverage.in_state(state));
        let mut gaps: Vec<_> = gaps.map(|gap| (gap.offset, gap.len)).collect();
        gaps.sort_unstable();
        AtomPlaces { blocks: self.blocks, gaps, shift: self.shift }
    }
}

#[cfg(test)]
mod tests {
    use cheetah_device::ByteRange;
    use cheetah_search::{Atoms, Order};

    use super::*;

    fn found() -> FoundAtoms {
        let atoms = Atoms { words: vec!["xxxx".into()], ignore_case: false };
        let encodings = vec!["utf-8".parse().unwrap()];
        let order = Order { words: vec!["word".into()], atoms, encodings, ..Order::default() };
        FoundAtoms::new(&Search::new(&order).unwrap())
    }

    fn hit(offset: u64, len: usize) -> Hit {
        let encoding = "windows-1252".parse().unwrap();
        Hit { offset, pattern: 1, encoding, bytes: vec![b'x'; len], before: Vec::new(), after: Vec::new() }
    }

    #[test]
    fn atoms_are_taken_out_of_the_hits_and_words_are_left() {
        let (mut found, word) = (found(), Hit { pattern: 0, ..hit(600, 4) });
        let hits = vec![hit(512, 4), word.clone(), hit(700, 4)];
        let mut batch = Batch { range: ByteRange::new(0, 4096), state: State::Read, why: None, hits, node: None };
        found.take(&mut batch);
        assert_eq!((batch.hits, found.places(&Coverage::new(4096)).blocks), (vec![word], vec![1]));
    }

    #[test]
    fn each_block_with_a_byte_of_an_atom_is_there_once_and_what_was_not_searched_is_a_gap() {
        let mut blocks = found();
        for (offset, len) in [(4600, 32), (0, 4), (510, 4), (511, 4), (4096, 32)] {
            blocks.add(&hit(offset, len));
        }
        let mut coverage = Coverage::new(8192);
        coverage.set(ByteRange::new(0, 8192), State::Read);
        coverage.set(ByteRange::new(512, 512), State::Unreadable);
        coverage.set(ByteRange::new(0, 512), State::Unread);
        let places = blocks.places(&coverage);
        assert_eq!((places.shift, places.blocks), (9, vec![0, 1, 8, 9]));
        assert_eq!(places.gaps, [(0, 512), (512, 512)]);
    }

    #[test]
    fn blocks_become_larger_if_there_are_too_many() {
        let mut blocks = found();
        blocks.blocks = (0..BLOCKS_MAX as u64).map(|block| 2 * block).collect();
        blocks.add(&hit(3 << SHIFT, 4));
        let places = blocks.places(&Coverage::new(8192));
        assert_eq!((places.shift, places.blocks.len()), (SHIFT + 1, BLOCKS_MAX));
        assert_eq!(places.blocks[..3], [0, 1, 2]);
    }
}
