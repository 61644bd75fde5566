//! Superblocks of the version 0.90, which have the byte order of the machine that wrote them.

use cheetah_device::ByteRange;

use super::MAGIC;
use super::refused::Obstacle;
use super::superblock::{Role, Shape, Superblock, folded, id_text, in_bytes};
use crate::checks::Checks;

/// The length of a superblock.
pub(super) const SUPERBLOCK_BYTES: u64 = 4096;
/// Superblocks begin at multiples of this: at the last but the part of one.
const ALIGNMENT: u64 = 64 << 10;

// Places of numbers of 32 bits.
const IDS: [usize; 4] = [5, 13, 14, 15];
const STATE: usize = 33;
const CHECKSUM: usize = 38;
/// The devices of an array: how many there may be, and the numbers that describe each.
const DEVICES: usize = 128;
const DEVICES_MAX: usize = 27;
const DEVICE_NUMBERS: usize = 32;
const THIS_DEVICE: usize = DEVICES + DEVICES_MAX * DEVICE_NUMBERS;

/// The minor number of versions whose array is not being reshaped.
const SETTLED: u32 = 90;
/// The level of a superblock whose array is described elsewhere.
const CONTAINER: i32 = -100;
/// The state of an array that was closed.
const CLEAN: u32 = 1;
// The states of a device.
const FAULTY: u32 = 1;
const IN_SYNC: u32 = 4;
const REMOVED: u32 = 8;

/// Where the superblock begins in a member of `len` bytes; `None` in one that is too short.
pub(super) fn place(len: u64) -> Option<u64> {
    (len / ALIGNMENT * ALIGNMENT).checked_sub(ALIGNMENT)
}

/// Parses the superblock in `bytes`, which lie `at` bytes from the start of a member; `None` if there is none.
pub(super) fn parse(bytes: &[u8], at: u64, checks: Checks) -> Option<Result<Superblock, &'static str>> {
    let words = bytes.get(..SUPERBLOCK_BYTES as usize)?.as_chunks::<4>().0;
    let read: fn([u8; 4]) -> u32 = match () {
        () if u32::from_le_bytes(words[0]) == MAGIC => u32::from_le_bytes,
        () if u32::from_be_bytes(words[0]) == MAGIC => u32::from_be_bytes,
        () => return None,
    };
    let is_big_endian = u32::from_le_bytes(words[0]) != MAGIC;
    let words: Vec<u32> = words.iter().map(|word| read(*word)).collect();
    if words[1] != 0 {
        return None;
    }
    if checks == Checks::Compared && !has_right_checksum(&words) {
        return Some(Err("the checksum of its superblock is wrong"));
    }
    Some(superblock(&words, is_big_endian, at).ok_or("its superblock is damaged"))
}

fn superblock(words: &[u32], is_big_endian: bool, at: u64) -> Option<Superblock> {
    let level = words[7].cast_signed();
    let shape = Shape {
        level,
        // Which of the two layouts of members of different sizes it is, is not recorded.
        layout: (level != 0).then_some(words[64]),
        chunk_bytes: words[65].into(),
        members: words[10],
        // In KiB.
        member_bytes: in_bytes(u64::from(words[8]) * 2)?,
    };
    let devices = words[DEVICES..THIS_DEVICE].chunks_exact(DEVICE_NUMBERS);
    let [low, high] = if is_big_endian { [40, 39] } else { [39, 40] };
    let number = words[THIS_DEVICE];
    Some(Superblock {
        id: id_text(&IDS.map(|word| words[word].to_be_bytes()).concat()),
        name: format!("md{}", words[11]),
        events: u64::from(words[high]) << 32 | u64::from(words[low]),
        shape,
        obstacle: match words[2] {
            _ if level == CONTAINER => Some(Obstacle::Container),
            SETTLED => None,
            _ => Some(Obstacle::Reshape),
        },
        roles: devices.map(role).collect(),
        is_clean: words[STATE] & CLEAN != 0,
        number,
        is_partial: false,
        data: ByteRange::new(0, at),
        bad_blocks: None,
    })
}

/// The role of a device, from its description.
fn role(device: &[u32]) -> Role {
    let (role, state) = (device[3], device[4]);
    match () {
        () if state & (FAULTY | REMOVED) != 0 => Role::Gone,
        () if state & IN_SYNC != 0 => Role::Member(role),
        () => Role::Spare,
    }
}

/// The architectures disagreed on how the sum is made; they agree on it folded to 16 bits.
fn has_right_checksum(words: &[u32]) -> bool {
    let short = |sum: u32| {
        let once = (sum & 0xffff) + (sum >> 16);
        (once & 0xffff) + (once >> 16)
    };
    short(checksum(words)) == short(words[CHECKSUM])
}

/// The checksum of a superblock, which has it in itself.
pub(super) fn checksum(words: &[u32]) -> u32 {
    folded(words.iter().map(|word| u64::from(*word)).sum::<u64>() - u64::from(words[CHECKSUM]))
}
