//! Blocks of known files: their hashes, found at every sector.
//!
//! File systems store files in clusters, which begin at sectors and have a multiple of 4 KiB as a rule. So the blocks of a file are found
//! on a disk wherever some of the file is left, by their hashes (Garfinkel et al. 2010, sector discrimination). Few blocks begin with
//! the same sector as one that is searched for: only these are hashed whole.

mod known;
mod runs;
mod set;
mod table;

use std::collections::HashSet;

use cheetah_error::{Error, Result};
use crc_fast::CrcAlgorithm::Crc64Nvme;

use crate::encoding::TextEncoding;
use crate::found::Found;
use crate::memory::TooMuch;

pub use known::{KnownFile, KnownFiles};
pub use runs::{KnownFound, KnownRun, KnownRuns};
pub use set::{NoKnownSet, SET_BYTES_MAX};

/// The bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks begin at multiples of this.
pub const SECTOR_BYTES: usize = 512;
/// The bytes of a key as it is sent.
const KEY_BYTES: usize = 24;

/// What a block is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The checksum of its first sector (CRC-64/NVME).
    sector: u64,
    /// The first half of its BLAKE3.
    hash: [u8; 16],
}

impl BlockKey {
    /// The key of a block.
    pub fn of(block: &[u8; BLOCK_BYTES]) -> Self {
        Self { sector: sector_sum(block), hash: hash(block) }
    }

    /// The key of the block that a hit has: its bytes, or, where only the key was kept, the key as it is sent.
    pub fn in_hit(bytes: &[u8]) -> Option<Self> {
        match <&[u8; BLOCK_BYTES]>::try_from(bytes) {
            Ok(block) => Some(Self::of(block)),
            Err(_) => Self::from_bytes(bytes).and_then(|keys| <[Self; 1]>::try_from(keys).ok()).map(|[key]| key),
        }
    }

    /// The keys, as they are sent.
    pub fn to_bytes(keys: &[Self]) -> Vec<u8> {
        keys.iter().flat_map(|key| key.sector.to_le_bytes().into_iter().chain(key.hash)).collect()
    }

    /// Keys as they are sent; `None` if that makes no sense.
    pub fn from_bytes(bytes: &[u8]) -> Option<Vec<Self>> {
        let key = |bytes: &[u8]| {
            let (sector, hash) = bytes.split_first_chunk()?;
            Some(Self { sector: u64::from_le_bytes(*sector), hash: hash.try_into().ok()? })
        };
        bytes.chunks(KEY_BYTES).map(key).collect()
    }
}

/// The blocks of an order, to be found.
pub(crate) struct Blocks {
    sectors: HashSet<u64>,
    hashes: HashSet<[u8; 16]>,
}

impl Blocks {
    /// The blocks of these keys; `None` if there are none.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if the keys have more than `bytes_max` bytes.
    pub fn new(keys: &[BlockKey], bytes_max: usize) -> Result<Option<Self>> {
        if keys.len().saturating_mul(KEY_BYTES) > bytes_max {
            return Err(Error::misuse("the blocks are too many for one search: divide them").because(TooMuch));
        }
        let (sectors, hashes) = keys.iter().map(|key| (key.sector, key.hash)).unzip();
        Ok((!keys.is_empty()).then_some(Self { sectors, hashes }))
    }

    /// The most memory that it takes: tables of which seven eighths to less than half are filled, with a byte for each place.
    pub fn memory_bytes(&self) -> usize {
        let places = self.sectors.capacity() + self.hashes.capacity();
        places.saturating_mul(2 * (1 + size_of::<[u8; 16]>()))
    }

    /// Finds the blocks in `bytes`, which begin at this offset of the device, and calls `found` for each, as pattern 0.
    pub fn scan(&self, offset: u64, bytes: &[u8], mut found: impl FnMut(Found) -> Result<()>) -> Result<()> {
        // Not truncated: less than a sector.
        let first = (SECTOR_BYTES - (offset % SECTOR_BYTES as u64) as usize) % SECTOR_BYTES;
        for start in (first..bytes.len()).step_by(SECTOR_BYTES) {
            let Some(block) = bytes.get(start..).and_then(<[u8]>::first_chunk::<BLOCK_BYTES>) else { break };
            if self.sectors.contains(&sector_sum(block)) && self.hashes.contains(&hash(block)) {
                found(Found { start, len: BLOCK_BYTES, pattern: 0, encoding: TextEncoding::Utf8 })?;
            }
        }
        Ok(())
    }
}

fn sector_sum(block: &[u8; BLOCK_BYTES]) -> u64 {
    let (sector, _) = block.split_at(SECTOR_BYTES);
    crc_fast::checksum(Crc64Nvme, sector)
}

fn hash(block: &[u8]) -> [u8; 16] {
    let hash = blake3::hash(block);
    let (half, _) = hash.as_bytes().split_at(16);
    half.try_into().unwrap_or_default()
}

/// Whether a block is one that many files have: a short pattern that repeats, such as zeros.
fn tells_nothing(block: &[u8]) -> bool {
    [1, 2, 3, 4, 6, 8, 12, 16, 32].iter().any(|period| {
        let (shifted, whole) = (block.get(*period..), block.get(..block.len().saturating_sub(*period)));
        shifted == whole
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Bytes without a pattern.
    pub fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    fn found(keys: &[BlockKey], offset: u64, bytes: &[u8]) -> Vec<u64> {
        let mut places = Vec::new();
        let blocks = Blocks::new(keys, usize::MAX).unwrap().unwrap();
        let note = |found: Found| {
            places.push(offset + found.start as u64);
            Ok(())
        };
        blocks.scan(offset, bytes, note).unwrap();
        places
    }

    #[test]
    fn a_block_is_found_at_every_sector_and_nowhere_else() {
        let block: [u8; BLOCK_BYTES] = noise(1, BLOCK_BYTES).try_into().unwrap();
        let keys = [BlockKey::of(&block)];
        let mut bytes = noise(2, 65_536);
        for at in [0, 4096 + 512, 65_536 - 4096] {
            bytes[at..at + BLOCK_BYTES].copy_from_slice(&block);
        }
        bytes[20_001..20_001 + BLOCK_BYTES].copy_from_slice(&block);
        assert_eq!(found(&keys, 0, &bytes), [0, 4608, 61_440]);
        assert_eq!(found(&keys, 1024, &bytes), [1024, 5632, 62_464]);
        // Sectors are those of the device.
        assert_eq!(found(&keys, 479, &bytes), [20_480]);
        assert!(found(&keys, 1, &bytes[20_000..24_000]).is_empty());
    }

    #[test]
    fn a_block_with_the_first_sector_of_another_is_none() {
        let mut block: [u8; BLOCK_BYTES] = noise(1, BLOCK_BYTES).try_into().unwrap();
        let keys = [BlockKey::of(&block)];
        block[600] ^= 1;
        assert!(found(&keys, 0, &block).is_empty());
    }

    #[test]
    fn keys_are_sent_and_read_and_other_bytes_are_none() {
        let keys: Vec<_> = (0..3).map(|seed| BlockKey::of(&noise(seed, BLOCK_BYTES).try_into().unwrap())).collect();
        let bytes = BlockKey::to_bytes(&keys);
        assert_eq!(BlockKey::from_bytes(&bytes), Some(keys));
        assert_eq!(BlockKey::from_bytes(&bytes[1..]), None);
        assert_eq!(BlockKey::from_bytes(&[]), Some(Vec::new()));
    }

    #[test]
    fn a_hit_with_the_key_of_a_block_has_the_key_of_its_bytes() {
        let block: [u8; BLOCK_BYTES] = noise(1, BLOCK_BYTES).try_into().unwrap();
        let key = BlockKey::of(&block);
        assert_eq!(BlockKey::in_hit(&block), Some(key));
        assert_eq!(BlockKey::in_hit(&BlockKey::to_bytes(&[key])), Some(key));
        for none in [&[][..], &block[1..], &BlockKey::to_bytes(&[key, key])] {
            assert_eq!(BlockKey::in_hit(none), None);
        }
    }

    #[test]
    fn patterns_that_repeat_tell_nothing() {
        assert!(
            [b"\0".as_slice(), b"\xff", b"ab", b"\0\0\0\x01"]
                .iter()
                .all(|part| tells_nothing(&part.repeat(1024)[..1024]))
        );
        assert!(!tells_nothing(&noise(1, BLOCK_BYTES)));
    }
}
