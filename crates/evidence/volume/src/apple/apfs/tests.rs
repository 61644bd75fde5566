//! A container that is not encrypted, without checksums: what is found in it, whatever is changed.

use cheetah_device::memory::Memory;
use cheetah_testing::apple::apfs::{
    BLOCK, CHECKPOINTS, CONTAINER_BAG, CONTAINER_ID, CONTAINER_MAP, ROOT, Record, SUPERBLOCK, VOLUME_ID, VOLUME_MAP,
    blob, container, extent,
};
use futures::FutureExt as _;
use proptest::prelude::*;

use super::super::{Flaw, Uuid};
use super::superblock::{CONVERSION, HARDWARE};
use super::*;

const BLOCKS: usize = 64;

fn made(extents: &[Record]) -> Vec<u8> {
    let blob = blob(0, &[9; 40], 256, b"s");
    container(BLOCKS, &blob, &blob, extents)
}

/// A container of which these bytes of a block are changed.
fn changed(changes: &[(u64, usize, u8)]) -> Vec<u8> {
    let mut bytes = made(&[]);
    changes.iter().for_each(|(block, at, byte)| bytes[*block as usize * BLOCK + at] = *byte);
    bytes
}

/// The start, the length and the first number of each run, in blocks.
type Runs = Vec<(u64, u64, u64)>;

/// The container, and the runs of its volume.
fn found(bytes: Vec<u8>) -> Result<(Container, Runs)> {
    let (range, device) = (ByteRange::new(0, bytes.len() as u64), Memory::new(bytes));
    let container = read_with(&device, range, Checks::Ignored).now_or_never().unwrap()?;
    let Some(volume) = container.volumes.first() else { return Ok((container, Vec::new())) };
    let decrypt = |_: u64, _: &mut [u8]| {};
    let runs = encrypted_runs(&device, range, &container, volume, &decrypt).now_or_never().unwrap()?;
    let block = BLOCK as u64;
    let in_blocks = |run: &Run| (run.range.offset / block, run.range.len / block, run.counted / block);
    let runs = runs.iter().map(in_blocks).collect();
    Ok((container, runs))
}

#[test]
fn the_keys_of_a_volume_and_its_blocks_with_their_numbers_are_found() {
    let whole = BLOCK as u64;
    let extents = [
        extent(20, 0, 3 * whole, 12, 12),
        // The same blocks in another file, a part that is zeros, and blocks that were moved.
        extent(21, 0, whole, 13, 13),
        extent(21, whole, whole, 0, 0),
        extent(22, 0, 2 * whole - 1, 30, 7),
    ];
    let (container, runs) = found(made(&extents)).unwrap();
    assert_eq!(container.id, Uuid(CONTAINER_ID));
    let volume = &container.volumes[0];
    assert_eq!((volume.id, &*volume.name, volume.is_encrypted, volume.refused), (Uuid(VOLUME_ID), "Disk", true, None));
    assert_eq!(volume.key.as_ref().unwrap().wrapped, [9; 40]);
    let [opener] = &volume.openers[..] else { panic!("{:?}", volume.openers) };
    assert_eq!((volume.kind_of(opener), opener.blob.iterations, &*opener.blob.salt), ("password", 256, &b"s"[..]));
    assert_eq!(runs, [(ROOT, 5, ROOT), (30, 2, 7)]);
    let place = container.superblock_place(volume);
    assert_eq!((place.offset, place.len), (SUPERBLOCK * whole, whole));
    let superblock = volume.unencrypted_superblock();
    assert_eq!((superblock[264], superblock[704]), (1, b'D'));
}

#[test]
fn blocks_with_two_numbers_and_outside_are_damage() {
    let whole = BLOCK as u64;
    for extents in [
        [extent(20, 0, 2 * whole, 30, 30), extent(21, 0, whole, 31, 30)],
        [extent(20, 0, whole, 63, 63), extent(21, 0, whole, 64, 64)],
        [extent(20, 0, whole, 63, 63), extent(21, 0, u64::MAX >> 8, u64::MAX, 64)],
        [extent(20, 0, whole, 63, 63), extent(21, 0, whole, 20, u64::MAX)],
    ] {
        assert!(matches!(found(made(&extents)), Err(Flaw::Damaged(_))), "{extents:?}");
    }
}

#[test]
fn what_no_key_can_open_is_refused_by_name() {
    let last = CHECKPOINTS + 1;
    let hardware = changed(&[(CONTAINER_BAG, 24, 0), (last, 1264, 0)]);
    let (for_files, converting) = (changed(&[(SUPERBLOCK, 264, 0)]), changed(&[(SUPERBLOCK, 976, 1)]));
    for (bytes, subject) in [(hardware, HARDWARE), (for_files, "a key for each file"), (converting, CONVERSION)] {
        let (container, _) = found(bytes).unwrap();
        assert_eq!(container.volumes[0].refused, Some(subject));
    }
    let (container, _) = found(changed(&[(SUPERBLOCK, 264, 1)])).unwrap();
    assert!(!container.volumes[0].is_encrypted && container.volumes[0].refused.is_none());
    let (container, _) = found(changed(&[(SUPERBLOCK, 24, 0)])).unwrap();
    assert_eq!((container.volumes.len(), container.unread.len()), (0, 1));
    let (fusion, new_key) = (changed(&[(last, 65, 1)]), changed(&[(VOLUME_MAP, 32, 8)]));
    assert!(matches!(found(fusion), Err(Flaw::Unsupported(_))));
    assert!(matches!(found(new_key), Err(Flaw::Unsupported(_))));
}

#[test]
fn a_map_that_names_a_node_twice_is_damaged() {
    for (second, is_whole) in [(41_u64, true), (40, false)] {
        let mut bytes = made(&[]);
        let root = (CONTAINER_MAP + 1) as usize * BLOCK;
        let leaf = bytes[root..root + BLOCK].to_vec();
        for block in [40_usize, 41] {
            bytes[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(&leaf);
        }
        // A node above leaves, with two of them.
        bytes[root + 32..root + BLOCK].fill(0);
        bytes[root + 32..root + 44].copy_from_slice(&[5, 0, 1, 0, 2, 0, 0, 0, 0, 0, 8, 0]);
        bytes[root + 56..root + 64].copy_from_slice(&[0, 0, 8, 0, 16, 0, 16, 0]);
        let end = root + BLOCK - 40;
        bytes[end - 16..end].copy_from_slice(&[second, 40].map(u64::to_le_bytes).concat());
        let outcome = found(bytes);
        assert_eq!(outcome.is_ok(), is_whole, "{:?}", outcome.err());
    }
}

#[test]
fn checksums_count_where_they_are_compared() {
    let bytes = made(&[]);
    let range = ByteRange::new(0, bytes.len() as u64);
    let outcome = read(&Memory::new(bytes), range).now_or_never().unwrap();
    assert_eq!(outcome.err(), Some(Flaw::Damaged("no superblock of the container is whole")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Runs are in order, apart, and within the container.
    #[test]
    fn any_container_is_described_or_refused(edits in prop::collection::vec((0usize..BLOCKS * BLOCK, any::<u8>()), 0..20)) {
        let mut bytes = made(&[extent(20, 0, 4096, 20, 20), extent(21, 0, 8192, 30, 7)]);
        for (at, byte) in edits {
            // In the first numbers of a block, mostly.
            let at = at / BLOCK % 16 * BLOCK + if at % 3 == 0 { at % BLOCK } else { at % 200 };
            bytes[at] = byte;
        }
        if let Ok((_, runs)) = found(bytes) {
            let end = runs.iter().fold(0, |end, (block, count, _)| { assert!(*block >= end); block + count });
            prop_assert!(end <= BLOCKS as u64);
        }
    }
}
