//! The entries of the catalog, put together as shadow copies, and what the header of a store says of one.

use cheetah_device::le::{u16_at, u64_at};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::block::BLOCK_HEADER_BYTES;
use super::refused::{Damage, Defect, Part};
use crate::partition::guid_text;

/// The maximum number of shadow copies of a volume: that of Windows.
const COPIES_MAX: usize = 512;

const ENTRY_BYTES: usize = 128;
const EMPTY: u64 = 0;
const UNUSED: u64 = 1;
const COPY: u64 = 2;
const STORE: u64 = 3;

/// From 1601, when Windows begins to count, to 1970, in its units of 100 ns.
const TO_1970: i128 = 116_444_736_000_000_000;

type Guid = [u8; 16];

/// A shadow copy that the catalog of a volume names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowCopy {
    /// Its number, from 1, which is the oldest.
    pub number: u32,
    /// When it was made, in units of 100 ns since 1601.
    pub created: u64,
    /// Its identifier, as Windows shows it; `None` if the header of its store cannot be read.
    pub id: Option<String>,
    /// The identifier of its store, which is also in the name of the file that holds that.
    pub store_id: String,
    /// The machine that made it; empty if that is not known.
    pub machine: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Why it cannot be opened, if that is known from the catalog and the header of its store.
    pub defect: Option<Defect>,
    pub(super) store: Option<StorePlaces>,
}

/// Where the structures of a store begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StorePlaces {
    pub header: u64,
    pub list: u64,
    pub bitmap: u64,
    /// 0 if it has none.
    pub previous_bitmap: u64,
}

impl ShadowCopy {
    /// When it was made, as RFC 3339 has it; empty if that is no time.
    pub fn created_text(&self) -> String {
        let nanos = (i128::from(self.created) - TO_1970) * 100;
        let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok();
        time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
    }

    /// Names it by its time and its identifier.
    pub fn description(&self) -> String {
        let mut text = match self.created_text().as_str() {
            "" => "shadow copy of an unknown time".to_owned(),
            time => format!("shadow copy of {time}"),
        };
        if let Some(id) = &self.id {
            text += &format!(" ({id})");
        }
        text
    }

    /// Adds what the header of its store says.
    pub(super) fn describe(&mut self, store_header: &[u8]) {
        let said = store_header.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        self.id = said.get(16..32).map(text);
        let machine_bytes = usize::from(u16_at(said, 64));
        self.machine = utf16(said.get(66..66 + machine_bytes).unwrap_or_default());
    }
}

/// The entries of a catalog, as they are collected.
#[derive(Default)]
pub(super) struct Entries {
    copies: Vec<CopyEntry>,
    stores: Vec<(Guid, StorePlaces)>,
}

struct CopyEntry {
    id: Guid,
    size_bytes: u64,
    created: u64,
}

impl Entries {
    /// Adds those of a block of the catalog, which was read at `at`.
    pub(super) fn add(&mut self, block: &[u8], at: u64) -> Result<(), Defect> {
        let entries = block.get(BLOCK_HEADER_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
        for entry in entries {
            let Some(id) = entry.get(16..32).and_then(|id| Guid::try_from(id).ok()) else { continue };
            match u64_at(entry, 0) {
                EMPTY | UNUSED => {}
                COPY => {
                    self.copies.push(CopyEntry { id, size_bytes: u64_at(entry, 8), created: u64_at(entry, 48) });
                }
                STORE => {
                    let [list, header] = [8, 32].map(|place| u64_at(entry, place));
                    let [bitmap, previous_bitmap] = [48, 72].map(|place| u64_at(entry, place));
                    self.stores.push((id, StorePlaces { header, list, bitmap, previous_bitmap }));
                }
                _ => return Err(damaged(at, Damage::Entry)),
            }
            if self.copies.len() > COPIES_MAX || self.stores.len() > COPIES_MAX {
                return Err(damaged(at, Damage::ManyEntries));
            }
        }
        Ok(())
    }

    /// The shadow copies of the catalog at `at`, in the order of their times.
    pub(super) fn copies(mut self, at: u64) -> Result<Vec<ShadowCopy>, Defect> {
        self.copies.sort_by_key(|copy| copy.created);
        // In which order their stores are read would not be known.
        if self.copies.windows(2).any(|two| two[0].created == two[1].created) {
            return Err(damaged(at, Damage::SameTime));
        }
        let copies = (1..).zip(&self.copies).map(|(number, copy)| {
            let mut stores = self.stores.iter().filter(|(id, _)| *id == copy.id);
            let same_id = self.copies.iter().filter(|other| other.id == copy.id).count();
            let (store, others) = (stores.next(), stores.next());
            if others.is_some() || same_id > 1 {
                return Err(damaged(at, Damage::SameId));
            }
            Ok(ShadowCopy {
                number,
                created: copy.created,
                id: None,
                store_id: text(&copy.id),
                machine: String::new(),
                size_bytes: copy.size_bytes,
                defect: store.is_none().then_some(Defect::NoStore),
                store: store.map(|(_, places)| *places),
            })
        });
        copies.collect()
    }
}

fn damaged(at: u64, why: Damage) -> Defect {
    Defect::Damaged { part: Part::Catalog, at, why }
}

fn text(guid: &[u8]) -> String {
    guid_text(guid).to_lowercase()
}

fn utf16(bytes: &[u8]) -> String {
    let (units, _) = bytes.as_chunks();
    String::from_utf16_lossy(&units.iter().map(|unit| u16::from_le_bytes(*unit)).collect::<Vec<_>>())
}
