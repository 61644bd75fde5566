//! The Apple partition map: a block for each partition, from the second block on.

use cheetah_device::{ByteRange, Device};

use super::{Defect, Partition, Table, described, name, read, sectors};

const ENTRY_BYTES: usize = 512;
const ENTRIES_MAX: u32 = 256;
/// Partitions that hold the map itself, drivers and free space; tools skip them, and so does the list.
const WITHOUT_CONTENT: [&str; 3] = ["Apple_partition_map", "Apple_Free", "Apple_Void"];

/// Reads the map, if there is one whose blocks have `block_bytes`.
pub(super) async fn read_table(device: &dyn Device, block_bytes: u64) -> Result<Option<Table>, Defect> {
    let mut partitions = Vec::new();
    let mut count = 1;
    for number in 1..=ENTRIES_MAX {
        let at = u64::from(number) * block_bytes;
        if number > count || at + ENTRY_BYTES as u64 > device.geometry().size {
            break;
        }
        let entry = read(device, ByteRange::new(at, ENTRY_BYTES as u64)).await?;
        if !entry.starts_with(b"PM\0\0") {
            if number == 1 {
                return Ok(None);
            }
            return Err(Defect::NoEntry { block: number, blocks: count });
        }
        let number_at = |at: usize| entry[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        if number == 1 {
            count = number_at(4);
        }
        let text = |range: std::ops::Range<usize>| name(entry[range].iter().map(|byte| char::from(*byte)));
        let kind = text(48..80);
        if WITHOUT_CONTENT.contains(&kind.as_str()) {
            continue;
        }
        if let Some(range) = sectors(number_at(8).into(), number_at(12).into(), block_bytes) {
            let description = described(&kind, &text(16..48));
            partitions.push(Partition::recorded(number, range, description, block_bytes));
        }
    }
    Ok(Some(Table { name: "an Apple partition map", sector_bytes: block_bytes, partitions }))
}
