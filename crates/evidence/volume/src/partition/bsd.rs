//! The BSD disk label, in the second sector.

use cheetah_device::{ByteRange, Device};

use super::{Defect, Partition, Table, read, sectors, u16_at, u32_at};

const MAGIC: u32 = 0x8256_4557;
const LABEL_BYTES: u64 = 512;
const MAGIC_AGAIN_AT: usize = 132;
const COUNT_AT: usize = 138;
const ENTRIES_AT: usize = 148;
const ENTRY_BYTES: usize = 16;
/// As many as fit into the sector.
const ENTRIES_MAX: usize = 22;
/// The entry that stands for the whole disk.
const WHOLE_DISK: usize = 2;

/// Reads the label, if there is one.
pub(super) async fn read_table(device: &dyn Device, sector_bytes: u64) -> Result<Option<Table>, Defect> {
    if device.geometry().size < sector_bytes + LABEL_BYTES {
        return Ok(None);
    }
    let label = read(device, ByteRange::new(sector_bytes, LABEL_BYTES)).await?;
    if u32_at(&label, 0) != MAGIC || u32_at(&label, MAGIC_AGAIN_AT) != MAGIC {
        return Ok(None);
    }
    let count = usize::from(u16_at(&label, COUNT_AT)).min(ENTRIES_MAX);
    let mut partitions = Vec::new();
    for (index, entry) in label[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(count).enumerate() {
        let (size, start, kind) = (u32_at(entry, 0), u32_at(entry, 4), entry[12]);
        if kind == 0 || index == WHOLE_DISK {
            continue;
        }
        if let Some(range) = sectors(start.into(), size.into(), sector_bytes) {
            let letter = char::from(b'a' + index as u8);
            let description = format!("BSD partition {letter} (type {kind})");
            partitions.push(Partition::recorded(index as u32 + 1, range, description, sector_bytes));
        }
    }
    Ok(Some(Table { name: "a BSD disk label", sector_bytes, partitions }))
}
