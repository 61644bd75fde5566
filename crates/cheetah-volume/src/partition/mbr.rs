//! The partition table of a master boot record, with its chain of logical partitions.

use cheetah_device::{ByteRange, Device};

use super::{Partition, read, u32_at};

/// The sector size of an MBR: 512 bytes, except on disks with native 4 KiB sectors, which the table does not reveal.
const SECTOR_BYTES: u64 = 512;
/// The offset of the four entries, and the size of one.
const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
/// The maximum length of the chain of logical partitions, which may be a loop.
const LOGICAL_MAX: u32 = 128;
/// The type of a protective entry, which covers a GPT.
const PROTECTIVE: u8 = 0xee;

/// The content of the first sector.
pub(super) enum Table {
    /// No partition table.
    None,
    /// A protective MBR of a GPT.
    Protective,
    /// A partition table.
    Partitions(Vec<Partition>),
}

#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

impl Entry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors > 0
    }

    fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    /// The partition, with sectors relative to `base`. 32-bit sector numbers cannot overflow here.
    fn partition(self, number: u32, base: u64) -> Partition {
        Partition { number, range: ByteRange::new((base + self.start) * SECTOR_BYTES, self.sectors * SECTOR_BYTES) }
    }
}

/// The four entries of a boot record, if it is one.
fn entries(sector: &[u8]) -> Option<[Entry; 4]> {
    if sector.get(510..512) != Some(&[0x55, 0xaa]) {
        return None;
    }
    let mut entries = [Entry { kind: 0, start: 0, sectors: 0 }; 4];
    for (entry, bytes) in entries.iter_mut().zip(sector[ENTRIES_AT..510].chunks_exact(ENTRY_BYTES)) {
        // A file system's boot sector has the same signature, but code or text here.
        if bytes[0] & 0x7f != 0 {
            return None;
        }
        *entry = Entry { kind: bytes[4], start: u32_at(bytes, 8).into(), sectors: u32_at(bytes, 12).into() };
    }
    Some(entries)
}

/// Reads the table, or returns the reason it cannot be read.
pub(super) async fn read_table(device: &dyn Device) -> Result<Table, String> {
    if device.geometry().size < SECTOR_BYTES {
        return Ok(Table::None);
    }
    let sector = read(device, ByteRange::new(0, SECTOR_BYTES)).await?;
    let Some(entries) = entries(&sector) else { return Ok(Table::None) };
    if entries.iter().any(|entry| entry.kind == PROTECTIVE) {
        return Ok(Table::Protective);
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        if entry.is_used() && !entry.is_extended() {
            partitions.push(entry.partition(number, 0));
        }
    }
    if let Some(extended) = entries.into_iter().find(|entry| entry.is_used() && entry.is_extended()) {
        read_logical(device, extended, &mut partitions).await;
    }
    if partitions.is_empty() { Ok(Table::None) } else { Ok(Table::Partitions(partitions)) }
}

/// Follows the chain of extended boot records: each holds one partition, relative to itself, and the position of the
/// next record, relative to the start of the extended partition.
async fn read_logical(device: &dyn Device, extended: Entry, partitions: &mut Vec<Partition>) {
    let mut at = extended.start;
    for number in 5..5 + LOGICAL_MAX {
        let record = match read(device, ByteRange::new(at * SECTOR_BYTES, SECTOR_BYTES)).await {
            Ok(record) => record,
            Err(why) => {
                tracing::warn!("logical partitions from number {number} on are missing: {why}");
                return;
            }
        };
        let Some([partition, next, ..]) = entries(&record) else {
            // An extended partition may be empty and hold no record at all.
            if number > 5 {
                tracing::warn!(
                    "logical partitions from number {number} on are missing: sector {at} is not a boot record"
                );
            }
            return;
        };
        if partition.is_used() && !partition.is_extended() {
            partitions.push(partition.partition(number, at));
        }
        if !next.is_used() || !next.is_extended() || next.start == 0 {
            return;
        }
        at = extended.start + next.start;
    }
    tracing::warn!(
        "more than {LOGICAL_MAX} logical partitions, or a cyclic chain of boot records; the rest is left out"
    );
}
