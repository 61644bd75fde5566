//! Ends of partitions, as their tables give them: not cut to the device, unlike those that are shown as files.

use cheetah_device::le::{u32_at, u64_at};

use super::{Claim, Look};

const SECTOR_SIZES: [u64; 2] = [512, 4096];
/// The maximum size of a table of the GPT; tools write 16 KiB.
const GPT_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of entries of an Apple partition map.
const APPLE_MAX: u32 = 256;
/// The type of an entry that covers a GPT.
const PROTECTIVE: u8 = 0xee;

/// What all tables of a device say.
#[derive(Default)]
pub(super) struct Tables {
    pub claims: Vec<Claim>,
    /// The name and the start of each partition.
    pub volumes: Vec<(String, u64)>,
}

impl Tables {
    fn add(&mut self, name: String, start: Option<u64>, end: Option<u64>) {
        let (Some(start), Some(end)) = (start, end) else { return };
        self.claims.push(Claim::new(name.clone(), end));
        self.volumes.push((name, start));
    }
}

/// Reads an MBR, a GPT and an Apple partition map; a device may have several of them.
pub(super) async fn read(look: &Look<'_>) -> Tables {
    let mut tables = Tables::default();
    for sector in
        SECTOR_SIZES.into_iter().filter(|size| look.options.sector_bytes.is_none_or(|known| u64::from(known) == *size))
    {
        gpt(look, sector, &mut tables).await;
    }
    mbr(look, &mut tables).await;
    apple(look, &mut tables).await;
    tables
}

/// Whether a disk with a partition table begins with these bytes.
pub(super) fn is_any(start: &[u8]) -> bool {
    let is_gpt = |sector: u64| start.get(sector as usize..).is_some_and(|header| header.starts_with(b"EFI PART"));
    SECTOR_SIZES.into_iter().any(is_gpt)
        || entries(start).is_some_and(|entries| entries.iter().any(|entry| entry[4] != 0 && u32_at(entry, 12) != 0))
        || start.starts_with(b"ER") && start.get(512..).is_some_and(|map| map.starts_with(b"PM"))
}

async fn gpt(look: &Look<'_>, sector: u64, tables: &mut Tables) {
    let Some(header) = look.read(sector, 512).await else { return };
    if !header.starts_with(b"EFI PART") || u64_at(&header, 24) != 1 {
        return;
    }
    let end_of = |last: u64| last.checked_add(1)?.checked_mul(sector);
    tables.claims.extend(end_of(u64_at(&header, 32)).map(|end| Claim::new("the copy of the GPT", end)));
    let (count, len) = (u64::from(u32_at(&header, 80)), u64::from(u32_at(&header, 84)));
    if !(128..=4096).contains(&len) || count * len > GPT_BYTES_MAX {
        return;
    }
    let Some(at) = u64_at(&header, 72).checked_mul(sector) else { return };
    let Some(entries) = look.read(at, count * len).await else { return };
    // At most 4096 bytes.
    for (number, entry) in (1..).zip(entries.chunks_exact(len as usize)) {
        if entry[..16] != [0; 16] {
            let (start, end) = (u64_at(entry, 32).checked_mul(sector), end_of(u64_at(entry, 40)));
            tables.add(format!("partition {number} of the GPT"), start, end);
        }
    }
}

/// The entries of a boot record, if it is one.
fn entries(record: &[u8]) -> Option<Vec<&[u8]>> {
    let entries: Vec<_> = record.get(446..510)?.chunks_exact(16).collect();
    // A file system's boot sector has the same signature, but code or text here.
    let is_one = record.get(510..512) == Some(&[0x55, 0xaa]) && entries.iter().all(|entry| entry[0] & 0x7f == 0);
    is_one.then_some(entries)
}

/// The first boot record. Logical partitions are within the extended one. A protective entry covers any device.
async fn mbr(look: &Look<'_>, tables: &mut Tables) {
    let Some(record) = look.read(0, 512).await else { return };
    let Some(entries) = entries(&record) else { return };
    let used = |entry: &[u8]| entry[4] != 0 && entry[4] != PROTECTIVE && u32_at(entry, 12) != 0;
    let entries: Vec<_> = (1..).zip(entries).filter(|(_, entry)| used(entry)).collect();
    let sector = match look.options.sector_bytes {
        Some(known) => u64::from(known),
        None => mbr_sector(look, &entries).await,
    };
    for (number, entry) in entries {
        let (first, count) = (u64::from(u32_at(entry, 8)), u64::from(u32_at(entry, 12)));
        tables.add(format!("partition {number} of the MBR"), Some(first * sector), Some((first + count) * sector));
    }
}

/// The sector size with which a file system is found where a partition starts; otherwise 512.
async fn mbr_sector(look: &Look<'_>, entries: &[(u32, &[u8])]) -> u64 {
    for sector in SECTOR_SIZES {
        for (_, entry) in entries {
            if look.volume(u64::from(u32_at(entry, 8)) * sector).await.is_some() {
                return sector;
            }
        }
    }
    SECTOR_SIZES[0]
}

async fn apple(look: &Look<'_>, tables: &mut Tables) {
    let be32 = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let Some(first) = look.read(0, 512).await else { return };
    // The map's own size of blocks: 512 bytes on disks, 2048 on optical media.
    let block = u64::from(be32(&first, 0) & 0xffff);
    if !first.starts_with(b"ER") || ![512, 1024, 2048, 4096].contains(&block) {
        return;
    }
    let blocks = be32(&first, 4);
    tables.claims.extend((blocks > 0).then(|| Claim::new("the Apple partition map", u64::from(blocks) * block)));
    let mut number = 1;
    let mut count = 1;
    while number <= count {
        let Some(entry) = look.read(u64::from(number) * block, 512).await.filter(|entry| entry.starts_with(b"PM"))
        else {
            return;
        };
        count = be32(&entry, 4).min(APPLE_MAX);
        let (first, len) = (u64::from(be32(&entry, 8)), u64::from(be32(&entry, 12)));
        tables.add(format!("partition {number} of the Apple map"), Some(first * block), Some((first + len) * block));
        number += 1;
    }
}
