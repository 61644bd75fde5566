//! Checks blocks. Each block contains its address and a version, and the checker knows which versions are allowed.

use cheetah_device::Data;

use crate::random::mix;

pub const BLOCK: u64 = 512;
const WORDS: usize = (BLOCK / 8) as usize;
/// The superseded versions of a block that are remembered, for readers that are behind.
const HISTORY: usize = 48;

/// The versions of each block.
pub struct Checker {
    /// Grows with every event.
    now: u64,
    version: u64,
    blocks: Vec<Block>,
    pub reads: u64,
    pub blocks_read: u64,
}

#[derive(Default, Clone)]
struct Block {
    versions: Vec<Version>,
    /// Versions superseded before this are forgotten.
    forgotten: u64,
}

#[derive(Debug, Clone, Copy)]
struct Version {
    version: u64,
    /// What the block holds in this version: 0 stands for zeros.
    content: u64,
    issued: u64,
    /// When the write ended, acknowledged or not.
    ended: Option<u64>,
    /// When a later write was acknowledged.
    superseded: Option<u64>,
}

impl Checker {
    pub fn new(size: u64) -> Self {
        let zeros = Version { version: 0, content: 0, issued: 0, ended: Some(0), superseded: None };
        let block = Block { versions: vec![zeros], forgotten: 0 };
        Self { now: 1, version: 0, blocks: vec![block; (size / BLOCK) as usize], reads: 0, blocks_read: 0 }
    }

    /// The time, as readers note it before they read.
    pub fn now(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Notes that a write of these blocks is about to be sent; returns its version.
    pub fn issue(&mut self, blocks: std::ops::Range<u64>, zeros: bool) -> u64 {
        self.version += 1;
        let (version, issued) = (self.version, self.now());
        let content = if zeros { 0 } else { version };
        for block in &mut self.blocks[blocks.start as usize..blocks.end as usize] {
            block.versions.push(Version { version, content, issued, ended: None, superseded: None });
        }
        version
    }

    /// Notes that a write has ended.
    pub fn end(&mut self, version: u64, blocks: std::ops::Range<u64>, acknowledged: bool) {
        let now = self.now();
        for block in &mut self.blocks[blocks.start as usize..blocks.end as usize] {
            let Some(own) = block.versions.iter_mut().find(|own| own.version == version) else { continue };
            own.ended = Some(now);
            let issued = own.issued;
            if acknowledged {
                for other in &mut block.versions {
                    if other.superseded.is_none() && other.ended.is_some_and(|ended| ended < issued) {
                        other.superseded = Some(now);
                    }
                }
            }
            while block.versions.len() > HISTORY {
                let Some(oldest) = block.versions.iter().position(|version| version.superseded.is_some()) else {
                    break;
                };
                let gone = block.versions.remove(oldest);
                block.forgotten = block.forgotten.max(gone.superseded.unwrap_or(0));
            }
        }
    }

    /// Checks the blocks read from block `first` on against the versions allowed at any time since `since`.
    pub fn check(&mut self, first: u64, data: &Data, since: Option<u64>) -> Result<(), String> {
        let bytes = data.clone().into_bytes();
        self.reads += 1;
        for (index, bytes) in bytes.chunks_exact(BLOCK as usize).enumerate() {
            self.blocks_read += 1;
            let address = first + index as u64;
            let found = content(address, bytes).ok_or_else(|| format!("block {address} holds made-up bytes"))?;
            let block = &self.blocks[address as usize];
            let mut known = block.versions.iter().filter(|version| version.content == found).peekable();
            if known.peek().is_none() && since.is_some_and(|since| since >= block.forgotten) {
                return Err(format!("block {address} holds version {found}, too old: {:?}", block.versions));
            }
            let Some(since) = since.filter(|since| *since >= block.forgotten) else { continue };
            let allowed = |version: &Version| version.superseded.is_none_or(|superseded| superseded > since);
            if !known.any(allowed) {
                let allowed: Vec<_> = block.versions.iter().filter(|version| allowed(version)).collect();
                return Err(format!("block {address} holds version {found}, allowed since {since} are {allowed:?}"));
            }
        }
        Ok(())
    }
}

/// The content of a version of blocks.
pub fn fill(blocks: std::ops::Range<u64>, version: u64) -> Vec<u8> {
    blocks.flat_map(|address| words(address, version)).flat_map(u64::to_le_bytes).collect()
}

fn words(address: u64, version: u64) -> [u64; WORDS] {
    let seed = mix(address ^ mix(version));
    std::array::from_fn(|index| match index {
        0 => address,
        1 => version,
        _ => seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    })
}

/// The version that a block contains; `None` if its content is of no version.
fn content(address: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let word = |index: usize| bytes[index * 8..][..8].try_into().map(u64::from_le_bytes).ok();
    let version = word(1).filter(|version| *version != 0)?;
    words(address, version)
        .iter()
        .enumerate()
        .all(|(index, expected)| word(index) == Some(*expected))
        .then_some(version)
}

#[test]
fn the_checker_knows_old_new_and_made_up_blocks_apart() {
    let mut checker = Checker::new(4 * BLOCK);
    let begun = checker.now();
    let first = checker.issue(0..2, false);
    let data = |version| Data::from(fill(0..2, version));
    assert!(checker.check(0, &data(first), Some(begun)).is_ok(), "in flight");
    assert!(checker.check(0, &Data::zeros(2 * BLOCK), Some(begun)).is_ok(), "not yet written");
    checker.end(first, 0..2, true);
    let acknowledged = checker.now();
    assert!(checker.check(0, &Data::zeros(2 * BLOCK), Some(acknowledged)).is_err(), "older than acknowledged");
    assert!(checker.check(0, &Data::zeros(2 * BLOCK), Some(begun)).is_ok(), "a reader that is behind");
    let failed = checker.issue(1..2, false);
    checker.end(failed, 1..2, false);
    let mixed = Data::from([fill(0..1, first), fill(1..2, failed)].concat());
    let now = checker.now();
    assert!(checker.check(0, &mixed, Some(now)).is_ok(), "a failed write may have taken effect");
    let mut torn = fill(0..1, first);
    torn[300] ^= 1;
    assert!(checker.check(0, &Data::from(torn), None).is_err());
    assert!(checker.check(1, &Data::from(fill(0..1, first)), None).is_err(), "another address");
}
