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
    /// Of a sealed drive: what was acknowledged and not flushed may be lost with its writer.
    sealed: bool,
    /// The first version that the present writer may have issued.
    first_of_writer: u64,
    /// Acknowledged and not flushed: versions, their blocks, and when they were acknowledged.
    unflushed: Vec<(u64, std::ops::Range<u64>, u64)>,
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
    /// When a later write was flushed. Of a sealed drive only.
    outdated: Option<u64>,
}

impl Version {
    /// Since when no read that begins may return it, whatever process makes it.
    fn is_over(&self, sealed: bool) -> Option<u64> {
        if sealed { self.outdated } else { self.superseded }
    }
}

impl Checker {
    pub fn new(size: u64, sealed: bool) -> Self {
        let zeros = Version { version: 0, content: 0, issued: 0, ended: Some(0), superseded: None, outdated: None };
        let block = Block { versions: vec![zeros], forgotten: 0 };
        let blocks = vec![block; (size / BLOCK) as usize];
        Self { now: 1, version: 0, blocks, sealed, first_of_writer: 0, unflushed: Vec::new(), reads: 0, blocks_read: 0 }
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
            block.versions.push(Version { version, content, issued, ended: None, superseded: None, outdated: None });
        }
        version
    }

    /// Notes that a write has ended.
    pub fn end(&mut self, version: u64, blocks: std::ops::Range<u64>, acknowledged: bool) {
        let now = self.now();
        let acknowledged = acknowledged && version >= self.first_of_writer;
        if acknowledged && self.sealed {
            self.unflushed.push((version, blocks.clone(), now));
        }
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
                let Some(oldest) = block.versions.iter().position(|version| version.is_over(self.sealed).is_some())
                else {
                    break;
                };
                let gone = block.versions.remove(oldest);
                block.forgotten = block.forgotten.max(gone.is_over(self.sealed).unwrap_or(0));
            }
        }
    }

    /// Notes that a writer is gone: what it did not flush may or may not be there.
    pub fn writer_is_gone(&mut self) {
        self.first_of_writer = self.version + 1;
        self.unflushed.clear();
        if self.sealed {
            let versions = self.blocks.iter_mut().flat_map(|block| &mut block.versions);
            versions.filter(|version| version.outdated.is_none()).for_each(|version| version.superseded = None);
        }
    }

    /// Notes that a flush that the present writer began at `begun` was acknowledged.
    pub fn flushed(&mut self, begun: u64) {
        let now = self.now();
        let (flushed, unflushed) =
            std::mem::take(&mut self.unflushed).into_iter().partition(|(.., acknowledged)| *acknowledged < begun);
        self.unflushed = unflushed;
        let flushed: Vec<_> = flushed;
        for (version, blocks, _) in flushed {
            for block in &mut self.blocks[blocks.start as usize..blocks.end as usize] {
                let Some(issued) = block.versions.iter().find(|own| own.version == version).map(|own| own.issued)
                else {
                    continue;
                };
                let older = block.versions.iter_mut().filter(|other| other.ended.is_some_and(|ended| ended < issued));
                older.for_each(|other| other.outdated = other.outdated.or(Some(now)));
            }
        }
    }

    /// As [`check`](Self::check), of a reader in another process that has the seal record of `since`.
    pub fn check_flushed(&mut self, first: u64, data: &Data, since: u64) -> Result<(), String> {
        self.check_by(first, data, Some(since), |version| version.outdated)
    }

    /// Checks the blocks read from block `first` on against the versions allowed at any time since `since`.
    pub fn check(&mut self, first: u64, data: &Data, since: Option<u64>) -> Result<(), String> {
        self.check_by(first, data, since, |version| version.superseded)
    }

    fn check_by(
        &mut self,
        first: u64,
        data: &Data,
        since: Option<u64>,
        over: impl Fn(&Version) -> Option<u64>,
    ) -> Result<(), String> {
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
            let allowed = |version: &Version| over(version).is_none_or(|over| over > since);
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
    let mut checker = Checker::new(4 * BLOCK, false);
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

#[test]
fn what_a_writer_of_a_sealed_drive_did_not_flush_may_be_lost_with_it() {
    let mut checker = Checker::new(BLOCK, true);
    let write = |checker: &mut Checker| {
        let version = checker.issue(0..1, false);
        checker.end(version, 0..1, true);
        version
    };
    let data = |version| Data::from(fill(0..1, version));
    let first = write(&mut checker);
    let begun = checker.now();
    checker.flushed(begun);
    let second = write(&mut checker);
    let now = checker.now();
    assert!(checker.check(0, &data(first), Some(now)).is_err(), "the writer itself never reads it again");
    assert!(checker.check_flushed(0, &data(first), now).is_ok(), "another process may");
    checker.writer_is_gone();
    let now = checker.now();
    for version in [first, second] {
        assert!(checker.check(0, &data(version), Some(now)).is_ok());
    }
    assert!(checker.check(0, &Data::zeros(BLOCK), Some(now)).is_err(), "a flushed version outlives its writer");
}
