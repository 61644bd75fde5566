//! The partition table of a master boot record, with its chain of logical partitions.

use std::collections::HashSet;

use cheetah_device::{ByteRange, Device};

use super::{Defect, Doubt, Partition, Remark, kinds, read, u32_at};

/// The bytes of a boot record, whatever the size of a sector.
const RECORD_BYTES: u64 = 512;
/// The offset of the four entries, and the size of one.
const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
/// The maximum length of the chains of logical partitions, which may be loops.
const LOGICAL_MAX: u32 = 128;
const FIRST_LOGICAL: u32 = 5;
/// The type of a protective entry, which covers a GPT.
const PROTECTIVE: u8 = 0xee;

/// The table in the first sector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record([Entry; 4]);

#[derive(Debug, Clone, Copy)]
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

    fn is_partition(self) -> bool {
        self.is_used() && !self.is_extended() && self.kind != PROTECTIVE
    }

    /// The partition, with sectors relative to `base`. 32-bit sector numbers cannot overflow here.
    fn partition(self, number: u32, base: u64, sector_bytes: u64) -> Partition {
        let range = ByteRange::new((base + self.start) * sector_bytes, self.sectors * sector_bytes);
        Partition::recorded(number, range, kinds::of_mbr(self.kind), sector_bytes)
    }
}

impl Record {
    /// Parses a boot record, if it is one.
    pub(super) fn parse(sector: &[u8]) -> Option<Self> {
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
        Some(Self(entries))
    }

    /// Whether it protects a GPT. Other entries make it a hybrid.
    pub(super) fn is_protective(&self) -> bool {
        self.0.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// Whether it has entries beside a protective one.
    pub(super) fn has_partitions(&self) -> bool {
        self.0.iter().any(|entry| entry.is_used() && entry.kind != PROTECTIVE)
    }

    /// The bytes that its entries reach to, in sectors of `sector_bytes`.
    pub(super) fn end(&self, sector_bytes: u64) -> u64 {
        let used = self.0.iter().filter(|entry| entry.is_used() && entry.kind != PROTECTIVE);
        used.map(|entry| (entry.start + entry.sectors) * sector_bytes).max().unwrap_or(0)
    }

    /// The partitions, in sectors of `sector_bytes`, logical ones last. A chain that breaks off is a remark.
    pub(super) async fn partitions(
        &self,
        device: &dyn Device,
        sector_bytes: u64,
        remarks: &mut Vec<Remark>,
    ) -> Vec<Partition> {
        let primary = (1..).zip(self.0).filter(|(_, entry)| entry.is_partition());
        let mut partitions: Vec<_> = primary.map(|(number, entry)| entry.partition(number, 0, sector_bytes)).collect();
        let mut chains = Chains { device, sector_bytes, number: FIRST_LOGICAL, seen: HashSet::new() };
        for extended in self.0.into_iter().filter(|entry| entry.is_used() && entry.is_extended()) {
            if let Err(why) = chains.follow(extended, &mut partitions).await {
                let first = chains.number;
                remarks.push(Remark::gap(Doubt::NoLogical { first, why }));
            }
        }
        partitions
    }
}

/// The chains of extended boot records.
struct Chains<'a> {
    device: &'a dyn Device,
    sector_bytes: u64,
    /// The number of the next partition.
    number: u32,
    /// The sectors of the records seen.
    seen: HashSet<u64>,
}

impl Chains<'_> {
    /// Follows a chain: each record holds partitions, relative to itself, and the position of the next record, relative
    /// to the start of the extended partition. Fails where it breaks off.
    async fn follow(&mut self, extended: Entry, partitions: &mut Vec<Partition>) -> Result<(), Defect> {
        let mut at = extended.start;
        loop {
            if self.number >= FIRST_LOGICAL + LOGICAL_MAX || self.seen.len() as u32 >= LOGICAL_MAX {
                return Err(Defect::TooManyLogical(LOGICAL_MAX));
            }
            if !self.seen.insert(at) {
                return Err(Defect::Loop(at));
            }
            let range = ByteRange::new(at * self.sector_bytes, RECORD_BYTES);
            if !range.fits(self.device.geometry().size) {
                return Err(Defect::RecordBeyondEnd(at));
            }
            let record = read(self.device, range).await?;
            let Some(Record(entries)) = Record::parse(&record) else {
                // An extended partition may be empty and hold no record at all.
                let is_empty = at == extended.start && record.iter().all(|byte| *byte == 0);
                return if is_empty { Ok(()) } else { Err(Defect::NoRecord(at)) };
            };
            for entry in entries.into_iter().filter(|entry| entry.is_partition()) {
                partitions.push(entry.partition(self.number, at, self.sector_bytes));
                self.number += 1;
            }
            let next = entries.into_iter().find(|entry| entry.is_used() && entry.is_extended());
            match next {
                Some(next) if next.start != 0 => at = extended.start + next.start,
                _ => return Ok(()),
            }
        }
    }
}
