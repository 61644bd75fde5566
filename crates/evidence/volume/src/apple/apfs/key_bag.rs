//! Key bags: entries about the keys of volumes, which the identifier of the container, or of a volume, decrypts.

use cheetah_device::le::{u16_at, u32_at, u64_at};

use super::super::xts::Xts;
use super::super::{Flaw, Result, Uuid};
use super::blocks::Blocks;
use crate::checks::Checks;

/// Types of bags.
pub(super) const OF_CONTAINER: u32 = u32::from_be_bytes(*b"keys");
pub(super) const OF_VOLUME: u32 = u32::from_be_bytes(*b"recs");
/// The most blocks that a bag has.
const BLOCKS_MAX: u64 = 256;
/// The units in which bags are encrypted.
const UNIT_BYTES: u64 = 512;
/// Bytes of an object and of a bag before the entries, and of an entry before its content.
const HEADER_BYTES: usize = 48;
const ENTRY_HEADER_BYTES: usize = 24;
const ALIGNMENT: usize = 16;

/// Kinds of entries.
pub(super) mod entry {
    /// Of a container: the key of a volume.
    pub const VOLUME_KEY: u16 = 2;
    /// Of a container: where the bag of a volume is. Of a volume: a key that opens it.
    pub const BAG_OR_OPENER: u16 = 3;
}

/// An entry of a bag.
pub(super) struct Entry {
    pub id: Uuid,
    pub kind: u16,
    pub content: Vec<u8>,
}

/// Where a bag lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BagPlace {
    pub block: u64,
    pub count: u64,
}

impl BagPlace {
    /// The place in these bytes.
    pub fn at(bytes: &[u8], at: usize) -> Self {
        Self { block: u64_at(bytes, at), count: u64_at(bytes, at + 8) }
    }
}

/// Reads a bag; `None` if this key does not decrypt it.
pub(super) async fn read(blocks: &Blocks<'_>, place: BagPlace, key: &Uuid, kind: u32) -> Result<Option<Vec<Entry>>> {
    if !(1..=BLOCKS_MAX).contains(&place.count) {
        return Err(Flaw::Damaged("the length of a key bag is wrong"));
    }
    let mut bag = blocks.read(place.block, place.count).await?;
    if blocks.checks == Checks::Compared {
        let first = place.block.wrapping_mul(blocks.block_bytes / UNIT_BYTES);
        Xts::new(&key.0, &key.0).decrypt(UNIT_BYTES as usize, first, &mut bag);
    }
    if u32_at(&bag, 24) != kind || !blocks.is_whole(&bag) {
        return Ok(None);
    }
    Ok(Some(entries(&bag)))
}

fn entries(bag: &[u8]) -> Vec<Entry> {
    let (count, mut rest) = (u16_at(bag, 34), bag.get(HEADER_BYTES..).unwrap_or_default());
    let mut entries = Vec::new();
    for _ in 0..count {
        let len = ENTRY_HEADER_BYTES + usize::from(u16_at(rest, 18));
        let (Some(entry), Some(id)) = (rest.get(..len), Uuid::at(rest, 0)) else { break };
        entries.push(Entry { id, kind: u16_at(entry, 16), content: entry[ENTRY_HEADER_BYTES..].to_vec() });
        rest = rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    entries
}
