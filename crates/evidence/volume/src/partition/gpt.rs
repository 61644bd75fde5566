//! The GUID partition table.

use cheetah_device::{ByteRange, Device};
use crc_fast::{CrcAlgorithm, checksum};

use super::{BadCopy, Defect, Partition, Table, described, kinds, name, read, u16_at, u32_at, u64_at};

/// The size of a header covered by its checksum; the rest of the sector is zero.
const HEADER_BYTES_MIN: usize = 92;
/// The position of the header's checksum, which counts as zero in its computation.
const HEADER_CRC_AT: std::ops::Range<usize> = 16..20;
/// Limits of the entries read. Tools write 128 entries of 128 bytes.
const ENTRY_BYTES_MAX: u32 = 4096;
const TABLE_BYTES_MAX: u64 = 1 << 20;

/// The outcome of looking for a GPT with sectors of one size.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Its partitions, from the first of its copies that is valid.
    pub(super) table: Option<Table>,
    /// What is wrong with the copies before that one.
    pub(super) bad: Vec<BadCopy>,
    /// Whether a copy is there, valid or not.
    pub(super) is_there: bool,
    /// Whether the partitions are from the backup.
    pub(super) is_backup: bool,
    /// The partitions of the backup, if both copies are valid and disagree.
    pub(super) other: Option<Table>,
}

struct Header {
    sector_bytes: u64,
    table_at: u64,
    entries: u64,
    entry_bytes: u64,
    table_crc: u32,
    /// The sector of the other copy.
    other: u64,
}

/// Reads the table in the second sector, or its backup in the last one; the backup also beside a valid table if `both`.
pub(super) async fn read_table(device: &dyn Device, sector_bytes: u64, both: bool) -> Found {
    let sectors = device.geometry().size / sector_bytes;
    let mut found = Found::default();
    if sectors < 3 {
        return found;
    }
    let first = read_at(device, sector_bytes, 1).await;
    if let (Ok((partitions, _)), false) = (&first, both) {
        found.table = Some(Table { name: "a GPT", sector_bytes, partitions: partitions.clone() });
        return found;
    }
    // The backup is where the first copy says. A disk that was enlarged has it before its end.
    let recorded = first.as_ref().ok().map(|(_, other)| *other).filter(|other| (2..sectors).contains(other));
    let mut second = read_at(device, sector_bytes, recorded.unwrap_or(sectors - 1)).await;
    if second.is_err() && recorded.is_some_and(|other| other != sectors - 1) {
        second = read_at(device, sector_bytes, sectors - 1).await;
    }
    found.is_there = !matches!((&first, &second), (Err(Defect::Absent), Err(Defect::Absent)));
    for (is_backup, copy) in [(false, &first), (true, &second)] {
        if let Err(why) = copy {
            found.bad.push(BadCopy { is_backup, why: why.clone() });
        }
    }
    found.is_backup = first.is_err();
    let table = |(partitions, _), name| Table { name, sector_bytes, partitions };
    if let (Ok(first), Ok(second)) = (&first, &second)
        && first.0 != second.0
    {
        found.other = Some(table(second.clone(), "a backup GPT that differs from the first copy"));
    }
    found.table = first.or(second).ok().map(|copy| table(copy, "a GPT"));
    found
}

/// Reads the table whose header is in `sector`; returns its partitions, and the sector of its other copy.
async fn read_at(device: &dyn Device, sector_bytes: u64, sector: u64) -> Result<(Vec<Partition>, u64), Defect> {
    let bytes = read(device, ByteRange::new(sector * sector_bytes, sector_bytes)).await?;
    if !bytes.starts_with(b"EFI PART") {
        return Err(Defect::Absent);
    }
    let header = parse_header(&bytes, sector_bytes, sector)?;
    let range = ByteRange::new(header.table_at, header.entries * header.entry_bytes);
    if !range.fits(device.geometry().size) {
        return Err(Defect::BeyondEnd);
    }
    let table = read(device, range).await?;
    if checksum(CrcAlgorithm::Crc32IsoHdlc, &table) != u64::from(header.table_crc) {
        return Err(Defect::EntriesChecksum);
    }
    Ok((parse_entries(&table, &header), header.other))
}

fn parse_header(bytes: &[u8], sector_bytes: u64, sector: u64) -> Result<Header, Defect> {
    let header_bytes = usize::try_from(u32_at(bytes, 12)).unwrap_or(usize::MAX);
    if header_bytes < HEADER_BYTES_MIN || header_bytes > bytes.len() {
        return Err(Defect::HeaderBytes(header_bytes));
    }
    let mut blanked = bytes[..header_bytes].to_vec();
    blanked[HEADER_CRC_AT].fill(0);
    if checksum(CrcAlgorithm::Crc32IsoHdlc, &blanked) != u64::from(u32_at(bytes, HEADER_CRC_AT.start)) {
        return Err(Defect::HeaderChecksum);
    }
    let recorded = u64_at(bytes, 24);
    if recorded != sector {
        return Err(Defect::OtherSector { sector, recorded });
    }
    let (entries, entry_bytes) = (u32_at(bytes, 80), u32_at(bytes, 84));
    if !(128..=ENTRY_BYTES_MAX).contains(&entry_bytes) || !entry_bytes.is_power_of_two() {
        return Err(Defect::EntryBytes(entry_bytes));
    }
    let (entries, entry_bytes) = (u64::from(entries), u64::from(entry_bytes));
    if entries * entry_bytes > TABLE_BYTES_MAX {
        return Err(Defect::TableBytes(entries * entry_bytes));
    }
    let table_at = u64_at(bytes, 72).checked_mul(sector_bytes).ok_or(Defect::BeyondAnyDevice)?;
    Ok(Header { sector_bytes, table_at, entries, entry_bytes, table_crc: u32_at(bytes, 88), other: u64_at(bytes, 32) })
}

fn parse_entries(table: &[u8], header: &Header) -> Vec<Partition> {
    let entry_bytes = usize::try_from(header.entry_bytes).unwrap_or(usize::MAX);
    let mut partitions = Vec::new();
    for (number, entry) in (1u32..).zip(table.chunks_exact(entry_bytes)) {
        let unused = entry[..16] == [0; 16];
        if unused {
            continue;
        }
        match parse_range(u64_at(entry, 32), u64_at(entry, 40), header.sector_bytes) {
            Some(range) => {
                let units = entry[56..128].chunks_exact(2).map(|two| u16_at(two, 0));
                let text = name(char::decode_utf16(units).map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER)));
                let description = described(&kinds::of_gpt(&entry[..16]), &text);
                partitions.push(Partition::recorded(number, range, description, header.sector_bytes));
            }
            None => tracing::warn!("partition {number} ends before it starts, or beyond any device; left out"),
        }
    }
    partitions
}

/// The bytes from the first sector to the last.
fn parse_range(first: u64, last: u64, sector_bytes: u64) -> Option<ByteRange> {
    let start = first.checked_mul(sector_bytes)?;
    let end = last.checked_add(1)?.checked_mul(sector_bytes)?;
    (start < end).then(|| ByteRange::between(start, end))
}
