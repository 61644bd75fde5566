//! Members of Linux's software RAID: whatever their superblocks say, an array lies within them, and each of its bytes is read or is an
//! error.

use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Device as _, DynDevice};
use cheetah_volume::offline::arrays;
use futures::FutureExt as _;

use crate::edited;

/// The size and the number of the members.
const MEMBER_BYTES: u64 = 128 << 10;
const MEMBERS: u32 = 4;
/// Where their data begin, in sectors, and how many are used.
const DATA: (u64, u64) = (64, 96);
const LEVELS: [i32; 8] = [-1, 0, 1, 4, 5, 6, 10, -4];
const NUMBER: u32 = 0xa92b_4efc;

/// Runs one input: the level and the version, then edits to the superblocks of an array.
pub fn run(data: &[u8]) {
    let Some((choice, edits)) = data.split_first() else { return };
    let level = LEVELS[usize::from(choice % 8)];
    let (make, place): (fn(i32, u32) -> Vec<u8>, _) = match choice / 8 % 2 {
        0 => (new, 4096),
        _ => (old, MEMBER_BYTES - (64 << 10)),
    };
    let all: Vec<_> = (0..MEMBERS).flat_map(|number| make(level, number)).collect();
    let all = edited(&all, edits);
    let mut disk = vec![0; MEMBER_BYTES as usize * MEMBERS as usize];
    let members = disk.chunks_mut(MEMBER_BYTES as usize);
    for (member, superblock) in members.zip(all.chunks(all.len() / MEMBERS as usize)) {
        member[place as usize..][..superblock.len()].copy_from_slice(superblock);
    }
    let disk = Arc::new(Memory::new(disk));
    let found = arrays(&disk, MEMBER_BYTES).volumes;
    let below: DynDevice = disk;
    for array in found {
        let is_within = |range: ByteRange| !range.is_empty() && range.fits(below.geometry().size);
        assert!(array.size_bytes > 0 && array.ranges().into_iter().all(is_within), "{array:?}");
        let device = array.over(&below).unwrap();
        for at in [0, array.size_bytes / 3, array.size_bytes - 1] {
            let range = ByteRange::new(at, (array.size_bytes - at).min(20 << 10));
            let read = device.read(range).now_or_never().unwrap();
            assert!(read.is_err() || read.is_ok_and(|data| data.len() == range.len));
        }
    }
}

/// A superblock of the version 1.2.
fn new(level: i32, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 256 + 2 * MEMBERS as usize];
    let layout = if level == 10 { 0x102 } else { 2u32 };
    for (at, value) in [(0, NUMBER), (4, 1), (72, level.cast_unsigned()), (76, layout), (88, 8), (92, MEMBERS)] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    for (at, value) in [(80, DATA.1), (128, DATA.0), (136, DATA.1), (144, 8), (200, 9), (208, u64::MAX)] {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes[160] = number as u8;
    bytes[220] = MEMBERS as u8;
    (0..MEMBERS as usize).for_each(|role| bytes[256 + 2 * role] = role as u8);
    bytes
}

/// A superblock of the version 0.90.
fn old(level: i32, number: u32) -> Vec<u8> {
    let mut words = vec![0u32; 1024];
    let layout = if level == 10 { 0x102 } else { 2 };
    for (word, value) in [
        (0, NUMBER),
        (2, 90),
        (7, level.cast_unsigned()),
        (8, 48),
        (10, MEMBERS),
        (33, 1),
        (39, 9),
        (64, layout),
        (65, 4096),
    ] {
        words[word] = value;
    }
    for role in 0..MEMBERS {
        words[128 + 32 * role as usize..][..5].copy_from_slice(&[role, 8, 1, role, 6]);
    }
    words[992] = number;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
