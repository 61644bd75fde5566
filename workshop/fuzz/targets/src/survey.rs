//! File systems: a survey of a hostile volume requests only ranges within it, and ends without a panic.

use cheetah_volume::offline::survey;

/// Room for structures after those that are generated for each kind of file system.
const SIZE: usize = 128 << 10;
/// The least size at which a volume is FAT32.
const FAT32_SIZE: u64 = 40 << 20;
/// Far more than any volume of that size takes.
const STEPS_MAX: usize = 20_000;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut volume = vec![0; SIZE];
    if choice & 0x40 == 0 {
        let len = data.len().min(SIZE);
        volume[..len].copy_from_slice(&data[..len]);
    } else {
        // Input at every structure: after the header of each record of an MFT.
        let skip = if choice % 6 == 0 { 56 } else { 0 };
        for (block, piece) in volume.chunks_mut(1024).zip(data.chunks(256).cycle()) {
            block[skip..skip + piece.len()].copy_from_slice(piece);
        }
    }
    // The signature and the true size of a file system, so that the rest is parsed.
    // If two kinds could be recognised, the intended one is.
    if choice % 6 != 5 {
        volume[3..11].fill(0);
        put(&mut volume, 510, [0; 2]);
    }
    let size = match choice % 6 {
        0 => ntfs(&mut volume, choice & 0x80 != 0),
        1 => ext(&mut volume, choice & 0x80 != 0),
        2 => fat(&mut volume),
        3 => fat32(&mut volume),
        4 => exfat(&mut volume),
        _ => i64::MAX as u64,
    };
    let Some(surveyed) = survey(&volume, STEPS_MAX) else { return };
    assert!(surveyed.ended || choice % 6 == 5, "{} takes more than {STEPS_MAX} steps", surveyed.name);
    assert!(surveyed.asked().all(|range| range.fits(size) && !range.is_empty()), "{}", surveyed.name);
    assert!(surveyed.files.iter().flat_map(|file| &file.runs).all(|run| run.fits(size)), "{}", surveyed.name);
}

fn put<const N: usize>(volume: &mut [u8], at: usize, bytes: [u8; N]) {
    volume[at..at + N].copy_from_slice(&bytes);
}

/// Clusters and records of 1 KiB, the MFT from the fourth on, up to the end; all records are records, if `whole`.
fn ntfs(volume: &mut [u8], whole: bool) -> u64 {
    put(volume, 3, *b"NTFS    \0\x02\x02");
    put(volume, 40, (SIZE as u64 / 512).to_le_bytes());
    put(volume, 48, 4_u64.to_le_bytes());
    put(volume, 64, [1]);
    put(volume, 510, [0x55, 0xaa]);
    for record in (4096..SIZE).step_by(1024).take(if whole { SIZE } else { 1 }) {
        // An update sequence that replaces nothing, and attributes right behind it.
        put(volume, record, *b"FILE\x30\0\x01\0");
        put(volume, record + 20, [56, 0]);
    }
    put(volume, 4096 + 32, [0; 8]);
    // Content of 124 clusters from the fourth on: a header of 64 bytes and a run.
    put(volume, 4096 + 56, [0; 72]);
    put(volume, 4096 + 56, [0x80, 0, 0, 0, 72, 0, 0, 0, 1]);
    put(volume, 4096 + 56 + 32, [64]);
    for size in [40, 48, 56] {
        put(volume, 4096 + 56 + size, (124_u64 << 10).to_le_bytes());
    }
    put(volume, 4096 + 56 + 64, [0x11, 124, 4, 0]);
    SIZE as u64
}

/// One group of blocks of 1 KiB; its inodes from the sixth block on, if `whole`.
fn ext(volume: &mut [u8], whole: bool) -> u64 {
    let fields = [(0, 128), (4, SIZE as u32 / 1024), (0x14, 1), (0x18, 0), (0x20, 8192), (0x28, 128), (0x4c, 1)];
    for (at, value) in fields {
        put(volume, 1024 + at, u32::to_le_bytes(value));
    }
    put(volume, 1024 + 0x38, [0x53, 0xef]);
    put(volume, 1024 + 0x58, [128, 0]);
    volume[1024 + 0x60] &= !8;
    if whole {
        for (at, block) in [(0, 3), (4, 4), (8, 5)] {
            put(volume, 2048 + at, u32::to_le_bytes(block));
        }
    }
    SIZE as u64
}

/// FAT12: a sector for the table and one for the root directory, clusters of one sector.
fn fat(volume: &mut [u8]) -> u64 {
    put(volume, 11, [0, 2, 1, 1, 0, 1, 16, 0, 0, 1, 0xf8, 1, 0]);
    put(volume, 510, [0x55, 0xaa]);
    SIZE as u64
}

/// Clusters of one sector, the table from the second one on, the root directory in the first cluster.
fn fat32(volume: &mut [u8]) -> u64 {
    put(volume, 11, [0, 2, 1, 1, 0, 1, 0, 0, 0, 0, 0xf8, 0, 0]);
    put(volume, 32, (FAT32_SIZE as u32 / 512).to_le_bytes());
    put(volume, 36, 640_u32.to_le_bytes());
    put(volume, 44, 2_u32.to_le_bytes());
    put(volume, 510, [0x55, 0xaa]);
    FAT32_SIZE
}

/// A table of two sectors from the 24th on, clusters of one sector from the 32nd on, the root directory in the first.
fn exfat(volume: &mut [u8]) -> u64 {
    put(volume, 3, *b"EXFAT   ");
    put(volume, 72, (SIZE as u64 / 512).to_le_bytes());
    for (at, value) in [(80, 24), (84, 2), (88, 32), (92, SIZE as u32 / 512 - 32), (96, 2)] {
        put(volume, at, u32::to_le_bytes(value));
    }
    put(volume, 108, [9, 0, 1]);
    put(volume, 510, [0x55, 0xaa]);
    SIZE as u64
}
