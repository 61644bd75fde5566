//! Volumes of Apple's systems: whatever their metadata say, a volume lies within its place, and its pieces fit together.

use cheetah_device::ByteRange;
use cheetah_testing::apple::{apfs, core_storage};
use cheetah_unlock::offline::open_apple;

use crate::edited;

/// The part of a disk that is edited, and the disk: places of pieces lie behind the metadata.
const EDITED_BYTES: usize = 64 << 10;
const DISK_BYTES: usize = 128 << 10;
const OFFSET: u64 = 1 << 20;

/// Runs one input: edits of a disk.
pub fn run(data: &[u8]) {
    let Some((choice, edits)) = data.split_first() else { return };
    let disk = if choice % 2 == 0 { of_core_storage() } else { of_apfs() };
    let (edited_part, rest) = disk.split_at(EDITED_BYTES);
    let disk = [&edited(edited_part, edits)[..], rest].concat();
    let place = ByteRange::new(OFFSET, DISK_BYTES as u64);
    let opened = open_apple(&disk, OFFSET);
    assert!(opened.iter().all(|volume| place.contains(*volume) && !volume.is_empty()), "{opened:?}");
    assert!(!edits.is_empty() || opened.len() == 1, "the disk without edits is not opened");
}

fn of_core_storage() -> Vec<u8> {
    let context = "<dict><key>CryptoUsers</key><array></array><key>WrappedVolumeKeys</key><array></array></dict>";
    let mut objects = core_storage::lists();
    objects.push(core_storage::segments(&[(0, 4, 24), (4, 4, 20)]));
    objects.push(core_storage::volume(11, 6, "Disk", 8 * core_storage::BLOCK as u64));
    objects.push(core_storage::family(context));
    core_storage::disk(&objects, DISK_BYTES)
}

fn of_apfs() -> Vec<u8> {
    let blob = apfs::blob(0, &[9; 40], 1000, b"salt");
    let extents = [apfs::extent(20, 0, 8192, 12, 12), apfs::extent(21, 0, 8192, 16, 7)];
    apfs::container(DISK_BYTES / apfs::BLOCK, &blob, &blob, &extents)
}
