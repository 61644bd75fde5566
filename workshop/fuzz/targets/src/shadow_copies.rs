//! Shadow copies of an NTFS volume: whatever its structures say, each byte of one is read from within the volume or is an error.

use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Device as _, DynDevice};
use cheetah_volume::offline::shadow_copies;
use futures::FutureExt as _;

use crate::edited;

const BLOCK: u64 = 16 << 10;
/// The size of the volume, in blocks.
const BLOCKS: u64 = 24;
const IDENTIFIER: [u8; 16] =
    [0x6b, 0x87, 0x08, 0x38, 0x76, 0xc1, 0x48, 0x4e, 0xb7, 0xae, 0x04, 0x04, 0x6e, 0x6c, 0xc7, 0x52];
/// Where the structures lie, in blocks: the catalog, and of each store its header, list and bitmaps.
const CATALOG: u64 = 8;
const STORES: [u64; 2] = [9, 14];

/// Runs one input: flags of descriptors, then edits to the structures of two shadow copies.
pub fn run(data: &[u8]) {
    let Some((flags, edits)) = data.split_first() else { return };
    let pieces = structures(*flags);
    let all: Vec<_> = pieces.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    let all = edited(&all, edits);
    let mut disk = vec![0x5a; (BLOCK * BLOCKS) as usize];
    let mut rest = &all[..];
    for (at, bytes) in &pieces {
        let (piece, others) = rest.split_at(bytes.len());
        disk[*at as usize..][..piece.len()].copy_from_slice(piece);
        rest = others;
    }
    let disk = Arc::new(Memory::new(disk));
    let opened = shadow_copies(&disk);
    let below: DynDevice = disk;
    for snapshot in opened.snapshots {
        assert!(snapshot.copy.size_bytes <= BLOCK * BLOCKS, "{:?}", snapshot.copy);
        assert!(!snapshot.copy.description().is_empty());
        let device = snapshot.over(&below).unwrap();
        let size = device.geometry().size;
        for at in [0, size / 3, size.saturating_sub(1)] {
            let range = ByteRange::new(at, (size - at).min(40 << 10));
            let read = device.read(range).now_or_never().unwrap();
            assert!(read.is_err() || read.is_ok_and(|data| data.len() == range.len));
            let extents = device.extents(range).now_or_never().unwrap().unwrap();
            assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), range.len);
        }
    }
}

/// The structures of a volume with two shadow copies, and where each lies.
fn structures(flags: u8) -> Vec<(u64, Vec<u8>)> {
    let mut header = block(1, 0x1e00, 0);
    put(&mut header, 48, CATALOG * BLOCK);
    // The catalog has a second block, which is empty.
    let mut catalog = block(2, CATALOG * BLOCK, (CATALOG + 11) * BLOCK);
    catalog.resize(128 + 4 * 128, 0);
    let mut pieces = vec![
        (0, b"\xeb\x52\x90NTFS    ".to_vec()),
        (0x1e00, header),
        ((CATALOG + 11) * BLOCK, block(2, (CATALOG + 11) * BLOCK, 0)),
    ];
    for (index, first) in (0..).zip(STORES) {
        let at = |number: u64| (first + number) * BLOCK;
        let entry = &mut catalog[128 + 256 * index..][..256];
        for (place, value) in [(0, 2), (8, BLOCKS * BLOCK), (48, 133_000_000_000_000_000 + index as u64)] {
            put(entry, place, value);
        }
        for (place, value) in [(128, 3), (136, at(1)), (160, at(0)), (176, at(2)), (200, at(3))] {
            put(entry, place, value);
        }
        entry[16..32].fill(index as u8);
        entry[144..160].fill(index as u8);
        let mut store = block(4, at(0), 0);
        store.extend([7; 66]);
        let mut list = block(3, at(1), 0);
        for (number, flags) in (0..6).zip([flags & 0xf, flags >> 4, 1, 2, 0x88, 2]) {
            let mut descriptor = vec![0; 32];
            for (place, value) in [(0, number / 2), (8, (number + 3) % 6), (16, 20 + number % 4)] {
                put(&mut descriptor, place, value * BLOCK);
            }
            descriptor[24..].copy_from_slice(&[flags, 0, 0, 0, 0x0f, 0, 0xf0, 0]);
            list.extend(descriptor);
        }
        let bitmap = |number| [block(6, at(number), 0), vec![0xaa; 8]].concat();
        pieces.extend([(at(0), store), (at(1), list), (at(2), bitmap(2)), (at(3), bitmap(3))]);
    }
    pieces.push((CATALOG * BLOCK, catalog));
    pieces
}

/// The header of a block of a type.
fn block(kind: u32, at: u64, next: u64) -> Vec<u8> {
    let mut block = vec![0; 128];
    block[..16].copy_from_slice(&IDENTIFIER);
    block[16] = 1;
    block[20..24].copy_from_slice(&kind.to_le_bytes());
    // The header of the volume has its place elsewhere than blocks have.
    put(&mut block, 24, if kind == 1 { at } else { 0 });
    put(&mut block, 32, at);
    put(&mut block, 40, next);
    block
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
