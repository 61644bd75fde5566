//! The file allocation table: the successor of each cluster.

use cheetah_device::ByteRange;

use super::boot::{Geometry, Kind};
use crate::survey::pending_reads::part_of;
use cheetah_device::le::{u16_at, u32_at};

/// The size of a page of the table; divides 1 MiB.
const PAGE_BYTES: u64 = 64 << 10;
/// The maximum size kept of a table, from its start: 16 million clusters of FAT32. Chains end beyond.
pub(super) const KEPT_BYTES_MAX: u64 = 64 << 20;

/// The table's entry of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableEntry {
    /// Its successor.
    Cluster(u32),
    /// The last cluster of a chain, or unknown.
    End,
    /// Unused.
    Free,
    /// Unknown until this part of the table is read.
    Unknown(ByteRange),
}

#[derive(Debug, Clone)]
enum Page {
    /// Not requested.
    Away,
    /// Requested.
    Asked,
    /// Present; empty if unreadable.
    Here(Vec<u8>),
}

/// The table, as far as present.
#[derive(Debug)]
pub(super) struct Table {
    kind: Kind,
    range: ByteRange,
    pages: Vec<Page>,
}

impl Table {
    /// Makes a table without any content.
    pub fn new(geometry: &Geometry) -> Self {
        let range = geometry.table;
        let kept = range.len.min(KEPT_BYTES_MAX);
        let pages = (range.offset % PAGE_BYTES + kept).div_ceil(PAGE_BYTES);
        Self { kind: geometry.kind, range, pages: vec![Page::Away; usize::try_from(pages).unwrap_or(0)] }
    }

    /// The part that is kept.
    pub fn kept(&self) -> ByteRange {
        ByteRange::new(self.range.offset, self.range.len.min(KEPT_BYTES_MAX))
    }

    /// Records the request of a part.
    pub fn request(&mut self, part: ByteRange) {
        for (page, _) in self.pages_of(part) {
            self.put(page, Page::Asked);
        }
    }

    /// Records the arrival of a part; no bytes if unreadable.
    pub fn arrived(&mut self, part: ByteRange, bytes: &[u8]) {
        for (page, piece) in self.pages_of(part) {
            self.put(page, Page::Here(part_of(bytes, part, piece).to_vec()));
        }
    }

    fn put(&mut self, at: usize, page: Page) {
        if let Some(place) = self.pages.get_mut(at) {
            *place = page;
        }
    }

    /// The successor of a cluster.
    pub fn next(&self, cluster: u32) -> TableEntry {
        let cluster = u64::from(cluster);
        let found = match self.kind {
            Kind::Fat12 => self.entry(cluster + cluster / 2, 1).and_then(|low| {
                let high = self.entry(cluster + cluster / 2 + 1, 1)?;
                let both = low | high << 8;
                Ok(if cluster % 2 == 0 { both & 0xfff } else { both >> 4 })
            }),
            Kind::Fat16 => self.entry(cluster * 2, 2),
            Kind::Fat32 => self.entry(cluster * 4, 4).map(|entry| entry & 0x0fff_ffff),
            Kind::ExFat => self.entry(cluster * 4, 4),
        };
        let bad = match self.kind {
            Kind::Fat12 => 0xff7,
            Kind::Fat16 => 0xfff7,
            Kind::Fat32 => 0x0fff_fff7,
            Kind::ExFat => 0xffff_fff7,
        };
        match found {
            Ok(0) => TableEntry::Free,
            Ok(next) if next < bad => TableEntry::Cluster(next),
            Ok(_) => TableEntry::End,
            Err(next) => next,
        }
    }

    /// Reads a number of one, two or four bytes at an offset of the table, or returns the reason it is missing.
    fn entry(&self, at: u64, bytes: u64) -> Result<u32, TableEntry> {
        let at = self.range.offset + at;
        let first = self.range.offset / PAGE_BYTES;
        let index = at / PAGE_BYTES - first;
        let start = (index + first).saturating_mul(PAGE_BYTES);
        match usize::try_from(index).ok().and_then(|index| self.pages.get(index)) {
            None => Err(TableEntry::End),
            Some(Page::Here(page)) => {
                let at = usize::try_from(at - start.max(self.range.offset)).unwrap_or(usize::MAX);
                match bytes {
                    _ if at >= page.len() => Err(TableEntry::End),
                    1 => Ok(page.get(at).copied().unwrap_or(0).into()),
                    2 => Ok(u16_at(page, at).into()),
                    _ => Ok(u32_at(page, at)),
                }
            }
            Some(Page::Away | Page::Asked) => Err(TableEntry::Unknown(
                ByteRange::new(start, PAGE_BYTES).intersection(self.kept()).unwrap_or(self.kept()),
            )),
        }
    }

    /// Whether a part was not requested.
    pub fn is_away(&self, part: ByteRange) -> bool {
        self.pages_of(part).any(|(page, _)| matches!(self.pages.get(page), Some(Page::Away)))
    }

    /// Whether a part was requested and has not arrived.
    pub fn is_asked(&self, part: ByteRange) -> bool {
        self.pages_of(part).any(|(page, _)| matches!(self.pages.get(page), Some(Page::Asked)))
    }

    /// The requested parts.
    pub fn here(&self) -> impl Iterator<Item = ByteRange> {
        let pages = self.kept().split_at_multiples(PAGE_BYTES).zip(&self.pages);
        pages.filter(|(_, page)| !matches!(page, Page::Away)).map(|(range, _)| range)
    }

    /// Indexes of the pages of a part, each with the range of the part that it contains.
    fn pages_of(&self, part: ByteRange) -> impl Iterator<Item = (usize, ByteRange)> + use<> {
        let first = self.range.offset / PAGE_BYTES;
        part.split_at_multiples(PAGE_BYTES).filter_map(move |piece| {
            let index = (piece.offset / PAGE_BYTES).checked_sub(first)?;
            Some((usize::try_from(index).ok()?, piece))
        })
    }
}
