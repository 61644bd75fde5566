//! Which of the tables of a device is in use, and what the others say.
//!
//! The order is that of the Linux kernel: a GPT with its protective MBR, also a hybrid one; an MBR; a GPT whose
//! protective MBR is gone, unless the source begins like a volume; an Apple map; a Sun table; a BSD label. Of the same
//! table counted in sectors of two sizes, the one with more known formats at its places is taken; if they have as many,
//! the first.

use cheetah_device::{ByteRange, Device};
use cheetah_error::next::Measure;

use super::mbr::Record;
use super::{
    BadGpt, Defect, Doubt, PARTITIONS_MAX, Partition, PartitionTables, Remark, SECTOR_SIZES, SectorSize, Table, apple,
    bsd, gpt, read, sun,
};
use crate::formats::identify;

/// The first sector of a device, as far as a table in it is concerned.
const FIRST_BYTES: u64 = 512;
/// The maximum number of places that are examined for known formats.
const EXAMINED_MAX: usize = 64;
/// The sizes of a block of an Apple map beside those of a sector: it is also used on CDs.
const CD_SECTOR_BYTES: u64 = 2048;

/// A table, and the remarks that apply if it is in use.
struct Candidate {
    table: Table,
    remarks: Vec<Remark>,
}

impl Candidate {
    fn plain(table: Table) -> Self {
        Self { table, remarks: Vec::new() }
    }
}

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Every table and its backup, and what else they name.
    All,
    /// As much as is needed for the partitions in use.
    InUse,
}

/// Reads the tables.
pub(super) async fn read_tables(device: &dyn Device, sectors: SectorSize, extent: Extent) -> PartitionTables {
    let known = sectors.known();
    let mut remarks = Vec::new();
    let mut sizes = sizes(known);
    if known.is_some() && matches!(sectors, SectorSize::Given(_)) {
        sizes.truncate(1);
    }
    let sector = first_sector(device, &mut remarks).await;
    let record = Record::parse(&sector);
    let mut candidates = by_gpt(device, &sizes, known, record, extent, &mut remarks).await;
    let of_mbr = by_mbr(device, &sizes, record, known, &mut remarks).await;
    if record.is_some_and(|record| record.is_protective()) {
        candidates.extend(of_mbr);
    } else if of_mbr.is_empty() && !candidates.is_empty() {
        // A volume made on a disk that had a GPT leaves the backup at the end.
        if identify(device, whole(device)).await.has_format() {
            remarks.push(Remark::note(Doubt::RemainsOfGpt));
            let remains = std::mem::take(&mut candidates);
            return with_others(device, Vec::new(), remains, remarks).await;
        }
        remarks.push(Remark::note(Doubt::NoProtectiveMbr));
    } else {
        candidates.splice(0..0, of_mbr);
    }
    if extent == Extent::All || candidates.is_empty() {
        candidates.extend(by_other_tables(device, &sizes, &sector, &mut remarks).await);
    }
    if candidates.is_empty() {
        return PartitionTables { remarks, ..PartitionTables::default() };
    }
    let used = candidates.remove(0);
    remarks.extend(used.remarks);
    if extent == Extent::InUse {
        candidates.clear();
    }
    with_others(device, used.table.partitions, candidates, remarks).await
}

/// The sizes of a sector to try, the likeliest first.
fn sizes(known: Option<u64>) -> Vec<u64> {
    let mut sizes: Vec<_> = known.into_iter().collect();
    sizes.extend(SECTOR_SIZES.into_iter().filter(|size| Some(*size) != known));
    sizes
}

fn whole(device: &dyn Device) -> ByteRange {
    ByteRange::new(0, device.geometry().size)
}

async fn first_sector(device: &dyn Device, remarks: &mut Vec<Remark>) -> Vec<u8> {
    if device.geometry().size < FIRST_BYTES {
        return Vec::new();
    }
    read(device, ByteRange::new(0, FIRST_BYTES)).await.unwrap_or_else(|why| {
        remarks.push(Remark::gap(Doubt::FirstSector(why)));
        Vec::new()
    })
}

/// The GPTs, in sectors of each size, with the remarks about their copies.
async fn by_gpt(
    device: &dyn Device,
    sizes: &[u64],
    known: Option<u64>,
    record: Option<Record>,
    extent: Extent,
    remarks: &mut Vec<Remark>,
) -> Vec<Candidate> {
    let (mut candidates, mut bad) = (Vec::new(), Vec::new());
    for &size in sizes {
        let found = gpt::read_table(device, size, extent == Extent::All).await;
        if let Some(table) = found.table {
            let mut notes = Vec::new();
            if found.is_backup {
                notes.push(Remark::note(Doubt::BackupUsed(found.bad)));
            } else if !found.bad.is_empty() {
                notes.push(Remark::note(Doubt::NoBackup(found.bad)));
            }
            if known.is_some_and(|known| known != size) {
                notes.push(Remark::note(Doubt::GptUnlikeSource(size)));
            }
            candidates.push(Candidate { table, remarks: notes });
            candidates.extend(found.other.map(Candidate::plain));
        } else if found.is_there {
            bad.push(BadGpt { sector_bytes: size, copies: found.bad });
        }
    }
    if candidates.is_empty() && record.is_some_and(|record| record.is_protective()) {
        remarks.push(Remark::gap(Doubt::NoGpt(bad)));
    }
    candidates
}

/// The MBR's own partitions, in sectors of each size that is possible, the best first.
async fn by_mbr(
    device: &dyn Device,
    sizes: &[u64],
    record: Option<Record>,
    known: Option<u64>,
    remarks: &mut Vec<Remark>,
) -> Vec<Candidate> {
    let Some(record) = record.filter(Record::has_partitions) else { return Vec::new() };
    let end = device.geometry().size;
    let mut candidates = Vec::new();
    for (place, &size) in sizes.iter().enumerate() {
        // Sectors in which the table would reach beyond the end are not its sectors.
        if place == 0 || record.end(size) <= end {
            let mut broken = Vec::new();
            let partitions = record.partitions(device, size, &mut broken).await;
            let table = Table { name: "an MBR", sector_bytes: size, partitions };
            candidates.push(Candidate { table, remarks: broken });
        }
    }
    if candidates.len() > 1 {
        order_by_formats(device, &mut candidates, known, remarks).await;
    }
    candidates.retain(|one| !one.table.partitions.is_empty());
    candidates
}

/// Puts the table with the most known formats at its places first, and says what that shows of the sectors' size.
async fn order_by_formats(
    device: &dyn Device,
    candidates: &mut Vec<Candidate>,
    known: Option<u64>,
    remarks: &mut Vec<Remark>,
) {
    let mut weighed = Vec::new();
    for one in candidates.drain(..) {
        let mut formats = 0;
        for partition in one.table.partitions.iter().take(EXAMINED_MAX) {
            formats += usize::from(has_format(device, partition).await);
        }
        weighed.push((formats, one));
    }
    // Stable: of equals the first stays first.
    let usual = weighed[0].1.table.sector_bytes;
    weighed.sort_by_key(|(formats, _)| std::cmp::Reverse(*formats));
    let (best, used) = (weighed[0].0, weighed[0].1.table.sector_bytes);
    let rival = weighed[1].0;
    let other = weighed[1].1.table.sector_bytes;
    let doubt = match known {
        Some(_) if used != usual => Some(Doubt::MbrUnlikeSource { recorded: usual, used }),
        Some(_) => None,
        None if best == rival => Some(Doubt::Ambiguous { used, other, with_formats: best > 0 }),
        None if rival > 0 || used != usual => {
            Some(Doubt::ByFormats { used, other, formats: best, other_formats: rival })
        }
        None => None,
    };
    let next = (known.is_none() && best == rival).then(|| Measure::GiveSectorSize.into());
    remarks.extend(doubt.map(|doubt| Remark { next, ..Remark::note(doubt) }));
    candidates.extend(weighed.into_iter().map(|(_, one)| one));
}

/// Tables of other machines.
async fn by_other_tables(
    device: &dyn Device,
    sizes: &[u64],
    sector: &[u8],
    remarks: &mut Vec<Remark>,
) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let mut failed = |why: Defect, table| remarks.push(Remark::gap(Doubt::Unreadable { table, why }));
    for size in sizes.iter().copied().chain([CD_SECTOR_BYTES]) {
        match apple::read_table(device, size).await {
            Ok(Some(table)) => {
                candidates.push(Candidate::plain(table));
                break;
            }
            Ok(None) => {}
            Err(why) => failed(why, "An Apple partition map"),
        }
    }
    candidates.extend(sun::parse(sector, sizes[0]).map(Candidate::plain));
    for &size in sizes {
        match bsd::read_table(device, size).await {
            Ok(Some(table)) => {
                candidates.push(Candidate::plain(table));
                break;
            }
            Ok(None) => {}
            Err(why) => failed(why, "A BSD disk label"),
        }
    }
    candidates
}

/// The result: the partitions in use, and what the tables that are not in use name beside them.
async fn with_others(
    device: &dyn Device,
    partitions: Vec<Partition>,
    rest: Vec<Candidate>,
    mut remarks: Vec<Remark>,
) -> PartitionTables {
    let size = device.geometry().size;
    let mut tables = PartitionTables::default();
    for partition in partitions {
        match partition.clipped(size) {
            Some(inside) if tables.partitions.len() < PARTITIONS_MAX => tables.partitions.push(inside),
            Some(_) => {
                remarks.push(Remark::gap(Doubt::TooMany));
                break;
            }
            None => tables.beyond.push(partition),
        }
    }
    let mut examined = 0;
    for Candidate { table, .. } in rest {
        let is_new = |one: &&Partition| {
            let starts_there = |used: &Partition| used.recorded.offset == one.recorded.offset;
            !tables.partitions.iter().chain(&tables.others).chain(&tables.beyond).any(starts_there)
        };
        let new: Vec<_> = table.partitions.iter().filter(is_new).filter_map(|one| one.clipped(size)).collect();
        if new.is_empty() {
            continue;
        }
        let (count, mut held) = (new.len(), 0);
        for mut partition in new {
            examined += 1;
            if examined <= EXAMINED_MAX && has_format(device, &partition).await {
                held += 1;
                partition.description = format!("{}, according to {}", partition.description, table.name);
                tables.others.push(partition);
            }
        }
        let same_table = table.name == "an MBR" && held == 0;
        if !same_table {
            let Table { name, sector_bytes, .. } = table;
            remarks.push(Remark::note(Doubt::NotInUse { table: name, sector_bytes, places: count, formats: held }));
        }
    }
    PartitionTables { remarks, ..tables }
}

async fn has_format(device: &dyn Device, partition: &Partition) -> bool {
    match partition.clipped(device.geometry().size) {
        Some(inside) => identify(device, inside.range).await.has_format(),
        None => false,
    }
}
