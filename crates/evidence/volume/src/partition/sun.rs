//! The partition table of Sun's SPARC machines, in the first sector. It counts in cylinders.

use super::{Partition, Table, sectors};

const MAGIC_AT: usize = 508;
const MAGIC: u16 = 0xdabe;
const KINDS_AT: usize = 142;
const ENTRIES_AT: usize = 444;
const ENTRIES: usize = 8;
/// The type of the entry that stands for the whole disk.
const WHOLE_DISK: u16 = 5;

/// Parses the first sector, if it is such a table.
pub(super) fn parse(sector: &[u8], sector_bytes: u64) -> Option<Table> {
    let short = |at: usize| sector.get(at..at + 2).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
    let long = |at: usize| u64::from(short(at)) << 16 | u64::from(short(at + 2));
    let sum = (0..256).fold(0, |sum, word| sum ^ short(2 * word));
    if sector.len() < 512 || short(MAGIC_AT) != MAGIC || sum != 0 {
        return None;
    }
    let cylinder = u64::from(short(436)) * u64::from(short(438));
    let mut partitions = Vec::new();
    for index in 0..ENTRIES {
        let kind = short(KINDS_AT + 4 * index);
        let (first, count) = (long(ENTRIES_AT + 8 * index), long(ENTRIES_AT + 8 * index + 4));
        if kind == WHOLE_DISK {
            continue;
        }
        if let Some(range) = first.checked_mul(cylinder).and_then(|first| sectors(first, count, sector_bytes)) {
            let description = format!("Sun slice {index} (type {kind})");
            partitions.push(Partition::recorded(index as u32 + 1, range, description, sector_bytes));
        }
    }
    Some(Table { name: "a Sun partition table", sector_bytes, partitions })
}
