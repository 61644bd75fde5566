//! Physical volumes of LVM2: whatever their metadata say, a logical volume lies within them.

use cheetah_device::ByteRange;
use cheetah_volume::offline::logical_volumes;

/// Where the metadata area begins, and its length; the rest of the disk is one extent and some.
const AREA: (usize, usize) = (1024, 64 << 10);
const DISK_BYTES: usize = 80 << 10;

/// Runs one input: the text of metadata, or with an odd first byte the first sectors as they are.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut disk = vec![0; DISK_BYTES];
    match choice % 2 {
        0 => write_metadata(&mut disk, &data[..data.len().min(AREA.1 - 512)]),
        _ => {
            let len = data.len().min(DISK_BYTES - 512);
            disk[512..512 + len].copy_from_slice(&data[..len]);
            disk[512..520].copy_from_slice(b"LABELONE");
            disk[536..544].copy_from_slice(b"LVM2 001");
        }
    }
    let whole = ByteRange::new(0, DISK_BYTES as u64);
    for volume in logical_volumes(disk).volumes {
        assert!(volume.size_bytes > 0 && volume.ranges().all(|range| whole.contains(range)), "{volume:?}");
        assert_eq!(volume.ranges().map(|range| range.len).sum::<u64>(), volume.size_bytes);
    }
}

fn write_metadata(disk: &mut [u8], text: &[u8]) {
    disk[512..520].copy_from_slice(b"LABELONE");
    disk[532] = 32;
    disk[536..544].copy_from_slice(b"LVM2 001");
    disk[544..576].fill(b'0');
    let (at, len) = AREA;
    for (place, value) in [(584, DISK_BYTES), (592, 0), (616, at), (624, len)] {
        disk[place..place + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    let area = &mut disk[at..at + len];
    area[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    area[20] = 1;
    for (place, value) in [(24, at), (32, len), (40, 512), (48, text.len())] {
        area[place..place + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    area[512..512 + text.len()].copy_from_slice(text);
}
