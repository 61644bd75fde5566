//! Partition tables: parsing one does not panic, and every partition found lies within the disk.

use cheetah_device::memory::Memory;
use cheetah_volume::partition::read_tables;

/// Room for a table at the start and a backup at the end.
const SIZE: usize = 80 << 10;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut disk = vec![0; SIZE];
    let len = data.len().min(SIZE);
    disk[..len].copy_from_slice(&data[..len]);
    // The signatures of a table, so that the rest is parsed.
    if choice & 1 == 0 {
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    }
    if choice & 2 == 0 {
        disk[512..520].copy_from_slice(b"EFI PART");
    }
    let disk = Memory::new(disk);
    let sector_bytes = [None, Some(512), Some(4096)][usize::from(choice >> 2) % 3];
    let tables = futures::executor::block_on(read_tables(&disk, sector_bytes));
    for partition in tables.partitions.iter().chain(&tables.others) {
        assert!(partition.range.fits(SIZE as u64) && !partition.range.is_empty());
    }
}
