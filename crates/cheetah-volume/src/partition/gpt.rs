//! The GUID partition table.

use cheetah_device::{ByteRange, Device, Size};
use crc_fast::{CrcAlgorithm, checksum};

use super::{Partition, read, u32_at, u64_at};

/// The size of a header covered by its checksum; the rest of the sector is zero.
const HEADER_BYTES_MIN: usize = 92;
/// The position of the header's checksum, which counts as zero in its computation.
const HEADER_CRC_AT: std::ops::Range<usize> = 16..20;
/// Limits of the entries read. Tools write 128 entries of 128 bytes.
const ENTRY_BYTES_MAX: u32 = 4096;
const TABLE_BYTES_MAX: u64 = 1 << 20;

struct Header {
    sector_bytes: u64,
    table_at: u64,
    entries: u64,
    entry_bytes: u64,
    table_crc: u32,
}

/// Reads the first table, or the one at the end of the device; an error if neither is valid.
pub(super) async fn read_table(device: &dyn Device) -> Result<Vec<Partition>, String> {
    let size = device.geometry().size;
    let mut reasons = Vec::new();
    for sector_bytes in [512, 4096] {
        let sectors = size / sector_bytes;
        for (name, sector) in [("first", 1), ("last", sectors.saturating_sub(1))] {
            if sector == 0 || sector >= sectors {
                continue;
            }
            match read_at(device, sector_bytes, sector).await {
                Ok(partitions) => {
                    if !reasons.is_empty() {
                        tracing::warn!("the {name} GPT is used: {}", reasons.join("; "));
                    }
                    return Ok(partitions);
                }
                Err(None) => {}
                Err(Some(why)) => reasons.push(format!("{name}, sectors of {}: {why}", Size(sector_bytes))),
            }
        }
    }
    Err(if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") })
}

/// Reads the table whose header is in `sector`. The error is empty if there is none.
async fn read_at(device: &dyn Device, sector_bytes: u64, sector: u64) -> Result<Vec<Partition>, Option<String>> {
    let bytes = read(device, ByteRange::new(sector * sector_bytes, sector_bytes)).await?;
    if !bytes.starts_with(b"EFI PART") {
        return Err(None);
    }
    let header = parse_header(&bytes, sector_bytes, sector)?;
    let range = ByteRange::new(header.table_at, header.entries * header.entry_bytes);
    let table = read(device, range).await?;
    if checksum(CrcAlgorithm::Crc32IsoHdlc, &table) != u64::from(header.table_crc) {
        return Err(Some("the checksum of the entries is wrong".to_owned()));
    }
    Ok(parse_entries(&table, &header))
}

fn parse_header(bytes: &[u8], sector_bytes: u64, sector: u64) -> Result<Header, String> {
    let header_bytes = usize::try_from(u32_at(bytes, 12)).unwrap_or(usize::MAX);
    if header_bytes < HEADER_BYTES_MIN || header_bytes > bytes.len() {
        return Err(format!("a header cannot be {header_bytes} bytes long"));
    }
    let mut blanked = bytes[..header_bytes].to_vec();
    blanked[HEADER_CRC_AT].fill(0);
    if checksum(CrcAlgorithm::Crc32IsoHdlc, &blanked) != u64::from(u32_at(bytes, HEADER_CRC_AT.start)) {
        return Err("the checksum of the header is wrong".to_owned());
    }
    if u64_at(bytes, 24) != sector {
        return Err(format!("the header in sector {sector} says it is in sector {}", u64_at(bytes, 24)));
    }
    let (entries, entry_bytes) = (u32_at(bytes, 80), u32_at(bytes, 84));
    if !(128..=ENTRY_BYTES_MAX).contains(&entry_bytes) || !entry_bytes.is_power_of_two() {
        return Err(format!("an entry cannot be {entry_bytes} bytes long"));
    }
    let (entries, entry_bytes) = (u64::from(entries), u64::from(entry_bytes));
    if entries * entry_bytes > TABLE_BYTES_MAX {
        return Err(format!("a table of {} is refused", Size(entries * entry_bytes)));
    }
    let table_at = u64_at(bytes, 72).checked_mul(sector_bytes).ok_or("the entries are beyond any device")?;
    Ok(Header { sector_bytes, table_at, entries, entry_bytes, table_crc: u32_at(bytes, 88) })
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
            Some(range) => partitions.push(Partition { number, range }),
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
