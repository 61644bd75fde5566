//! Superblocks of the versions 1.0, 1.1 and 1.2, which differ in their place.

use cheetah_device::ByteRange;
use cheetah_device::le::{u16_at, u32_at, u64_at};

use super::refused::Obstacle;
use super::superblock::{BadBlocks, Role, Shape, Superblock, folded, id_text, in_bytes};
use super::{MAGIC, SECTOR_BYTES};
use crate::checks::Checks;

/// The length of a superblock with as many roles as there may be.
pub(super) const SUPERBLOCK_BYTES: u64 = 4096;
/// The length without the roles.
const FIXED_BYTES: usize = 256;
/// The place of the checksum.
const CHECKSUM: usize = 216;
/// The longest list of bad blocks, in bytes.
const BAD_BLOCKS_BYTES_MAX: u64 = 4096;
/// The bits of an entry of a list of bad blocks that hold its length.
const LENGTH_BITS: u32 = 10;

/// The level of a superblock whose array is described elsewhere.
const CONTAINER: i32 = -100;

// What a superblock has, beyond what all have.
const BITMAP: u32 = 1;
const RECOVERING: u32 = 2;
const RESHAPING: u32 = 4;
const BAD_BLOCKS: u32 = 8;
const REPLACEMENT: u32 = 16;
const RESHAPING_BACKWARDS: u32 = 32;
const NEW_OFFSET: u32 = 64;
const RECOVERING_BY_BITMAP: u32 = 128;
const CLUSTERED: u32 = 256;
const JOURNAL: u32 = 512;
const PARTIAL_PARITY_LOG: u32 = 1024;
const SEVERAL_PARTIAL_PARITY_LOGS: u32 = 2048;
const RAID_0_LAYOUT: u32 = 4096;
const KNOWN: u32 = BITMAP
    | RECOVERING
    | RESHAPING
    | BAD_BLOCKS
    | REPLACEMENT
    | RESHAPING_BACKWARDS
    | NEW_OFFSET
    | RECOVERING_BY_BITMAP
    | CLUSTERED
    | JOURNAL
    | PARTIAL_PARITY_LOG
    | SEVERAL_PARTIAL_PARITY_LOGS
    | RAID_0_LAYOUT;

/// Where the superblocks of the versions 1.1, 1.2 and 1.0 begin in a member of `len` bytes.
pub(super) fn places(len: u64) -> [u64; 3] {
    let sectors = len / SECTOR_BYTES;
    [0, 4096, (sectors.saturating_sub(16) & !7) * SECTOR_BYTES]
}

/// Parses the superblock in `bytes`, which lie `at` bytes from the start of a member of `len` bytes; `None` if there is none, or one
/// that belongs elsewhere.
pub(super) fn parse(bytes: &[u8], at: u64, len: u64, checks: Checks) -> Option<Result<Superblock, &'static str>> {
    if u32_at(bytes, 0) != MAGIC || u32_at(bytes, 4) != 1 {
        return None;
    }
    let roles = u32_at(bytes, 220) as usize;
    let Some(whole) = roles.checked_mul(2).and_then(|len| bytes.get(..FIXED_BYTES.checked_add(len)?)) else {
        return Some(Err("its superblock has more roles than are possible"));
    };
    if checks == Checks::Compared && checksum(whole) != u32_at(whole, CHECKSUM) {
        return Some(Err("the checksum of its superblock is wrong"));
    }
    // The superblock at the end of a disk may be that of its last partition.
    if in_bytes(u64_at(whole, 144)) != Some(at) {
        return None;
    }
    Some(superblock(whole, at, len).ok_or("its superblock is damaged"))
}

fn superblock(bytes: &[u8], at: u64, len: u64) -> Option<Superblock> {
    let (features, level) = (u32_at(bytes, 8), u32_at(bytes, 72).cast_signed());
    let layout = (level != 0 || features & RAID_0_LAYOUT != 0).then(|| u32_at(bytes, 76));
    let shape = Shape {
        level,
        layout,
        chunk_bytes: in_bytes(u32_at(bytes, 88).into())?,
        members: u32_at(bytes, 92),
        member_bytes: in_bytes(u64_at(bytes, 80))?,
    };
    let data = ByteRange::new(in_bytes(u64_at(bytes, 128))?, in_bytes(u64_at(bytes, 136))?);
    data.offset.checked_add(data.len)?;
    let name = bytes[32..64].split(|byte| *byte == 0).next().unwrap_or_default();
    let roles: Vec<_> = bytes[FIXED_BYTES..].as_chunks::<2>().0.iter().map(|two| u16::from_le_bytes(*two)).collect();
    Some(Superblock {
        id: id_text(&bytes[16..32]),
        name: String::from_utf8_lossy(name).into_owned(),
        events: u64_at(bytes, 200),
        shape,
        obstacle: obstacle(features, level, &roles),
        roles: roles.into_iter().map(role).collect(),
        // Up to where the redundancy is up to date; all of it, if this is the largest number.
        is_clean: u64_at(bytes, 208) == u64::MAX,
        number: u32_at(bytes, 160),
        is_partial: features & (RECOVERING | RECOVERING_BY_BITMAP | REPLACEMENT) != 0,
        data,
        bad_blocks: match features & BAD_BLOCKS {
            0 => None,
            _ => Some(bad_blocks(bytes, at, len)?),
        },
    })
}

const JOURNAL_ROLE: u16 = 0xfffd;
const ROLES: std::ops::Range<u16> = 0..0xff00;

fn role(number: u16) -> Role {
    match number {
        number if ROLES.contains(&number) => Role::Member(number.into()),
        0xffff => Role::Spare,
        _ => Role::Gone,
    }
}

fn obstacle(features: u32, level: i32, roles: &[u16]) -> Option<Obstacle> {
    let has = |feature: u32| features & feature != 0;
    match () {
        () if level == CONTAINER => Some(Obstacle::Container),
        () if features & !KNOWN != 0 => Some(Obstacle::Features(features & !KNOWN)),
        () if has(RESHAPING | RESHAPING_BACKWARDS | NEW_OFFSET) => Some(Obstacle::Reshape),
        () if has(JOURNAL) || roles.contains(&JOURNAL_ROLE) => Some(Obstacle::Journal),
        () => None,
    }
}

/// Where the list of bad blocks lies: a number of sectors behind the superblock, or ahead of it if the number is negative.
fn bad_blocks(bytes: &[u8], at: u64, len: u64) -> Option<BadBlocks> {
    let sectors = i64::from(u32_at(bytes, 188).cast_signed());
    let offset = at.checked_add_signed(sectors.checked_mul(SECTOR_BYTES.cast_signed())?)?;
    let place = ByteRange::new(offset, in_bytes(u16_at(bytes, 186).into())?);
    let is_possible = sectors != 0 && place.len <= BAD_BLOCKS_BYTES_MAX && place.fits(len);
    is_possible.then_some(BadBlocks { place, unit_bits: bytes[185] })
}

/// Parses a list of bad blocks: the ranges of a member's data that it does not have, in offsets of the data.
pub(super) fn parse_bad_blocks(list: &[u8], unit_bits: u8, data: ByteRange) -> Result<Vec<ByteRange>, &'static str> {
    const DAMAGED: &str = "its list of bad blocks is damaged";
    let entries = list.as_chunks::<8>().0.iter().map(|eight| u64::from_le_bytes(*eight));
    let unit = 1u64.checked_shl(unit_bits.into()).and_then(in_bytes).ok_or(DAMAGED)?;
    let mut bad = Vec::new();
    for entry in entries.take_while(|entry| *entry != u64::MAX) {
        let (first, count) = (entry >> LENGTH_BITS, entry & ((1 << LENGTH_BITS) - 1));
        let place = first.checked_mul(unit).zip(count.checked_mul(unit)).ok_or(DAMAGED)?;
        let inside = ByteRange::new(place.0, place.1).intersection(data);
        bad.extend(inside.map(|inside| ByteRange::new(inside.offset - data.offset, inside.len)));
    }
    Ok(bad)
}

/// The checksum of a superblock, which has it in itself.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum::<u64>();
    let rest = if rest.len() == 2 { u64::from(u16_at(rest, 0)) } else { 0 };
    folded(sum + rest - u64::from(u32_at(bytes, CHECKSUM)))
}
