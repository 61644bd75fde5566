//! The log of metadata: blocks, each a version of an object.

use std::collections::HashMap;

use cheetah_device::ByteRange;
use cheetah_device::le::{u16_at, u64_at};

use super::super::part::Part;
use super::super::xts::Xts;
use super::super::{Flaw, Result};
use super::Log;
use super::header::{Header, is_whole};
use crate::checks::Checks;

/// Bytes of a block, and of the header of one.
pub(super) const BLOCK_BYTES: u64 = 8192;
pub(super) const BLOCK_HEADER_BYTES: usize = 64;
/// What is read at once.
const USED_PIECE_BYTES: u64 = 256 << 10;
const WHOLE_PIECE_BYTES: u64 = 4 << 20;
/// The most that is read to name a volume.
const USED_BYTES_MAX: u64 = 64 << 20;
/// What stands in the place of the checksum of an object that was wiped, and of its content.
const WIPED: &[u8] = b"LVFwiped";
/// The most objects whose content is kept. A volume has some ten.
const KEPT_MAX: usize = 1024;

/// Kinds of objects that are used here.
pub(super) mod kind {
    /// What is at the top: it names the list of families.
    pub const TOP: u16 = 0x18;
    /// What volumes of one key have in common.
    pub const FAMILY: u16 = 0x19;
    pub const VOLUME: u16 = 0x1a;
    /// The rest of the description of a family.
    pub const MORE: u16 = 0x24;
    pub const FAMILIES: u16 = 0x105;
    pub const VOLUMES: u16 = 0x205;
    /// Where a volume lies: a part of a larger table, or the table.
    pub const SEGMENTS_INDEX: u16 = 0x304;
    pub const SEGMENTS: u16 = 0x305;
    /// What segments begin at.
    pub const BASES: u16 = 0x505;
    pub(super) const ALL: [u16; 9] = [TOP, FAMILY, VOLUME, MORE, FAMILIES, VOLUMES, SEGMENTS_INDEX, SEGMENTS, BASES];
}

/// Where a copy of the log lies, in bytes.
#[derive(Clone, Copy)]
pub(super) struct LogPlace {
    pub at: u64,
    pub len: u64,
}

/// The last version of an object.
struct Version {
    transaction: u64,
    kind: u16,
    /// Its block, if its kind is used here and it was not wiped.
    block: Option<Vec<u8>>,
}

/// The objects, by identifier.
#[derive(Default)]
pub(super) struct Objects {
    versions: HashMap<u64, Version>,
    kept: usize,
}

impl Objects {
    /// Reads a copy of the log.
    pub async fn read(part: &Part<'_>, header: &Header, copy: LogPlace, log: Log, checks: Checks) -> Result<Self> {
        let mut objects = Self::default();
        let xts = Xts::new(&header.key, &header.id.0);
        let (piece_bytes, len) = match log {
            Log::Used => (USED_PIECE_BYTES, copy.len.min(USED_BYTES_MAX)),
            Log::Whole => (WHOLE_PIECE_BYTES, copy.len),
        };
        for piece in ByteRange::new(0, len).split_at_multiples(piece_bytes) {
            let at = copy.at.checked_add(piece.offset).ok_or(Flaw::Damaged("it names a place beyond its end"))?;
            let mut bytes = part.read(at, piece.len).await?;
            if log == Log::Used && bytes.iter().all(|byte| *byte == 0) {
                break;
            }
            let first = piece.offset / BLOCK_BYTES;
            for (number, block) in (first..).zip(bytes.chunks_exact_mut(BLOCK_BYTES as usize)) {
                // What was never written is not encrypted.
                if block.iter().any(|byte| *byte != 0) {
                    if checks == Checks::Compared {
                        xts.decrypt_unit(number, block);
                    }
                    objects.add(number, block, checks)?;
                }
            }
        }
        Ok(objects)
    }

    /// Adds a decrypted block. What an earlier volume left there does not decrypt to a whole one.
    fn add(&mut self, number: u64, block: &[u8], checks: Checks) -> Result<()> {
        let is_wiped = block.starts_with(WIPED);
        let is_right = checks == Checks::Ignored || (is_wiped || is_whole(block)) && u64_at(block, 32) == number;
        let (kind, transaction, id) = (u16_at(block, 10), u64_at(block, 16), u64_at(block, 24));
        let is_newer = self.versions.get(&id).is_none_or(|known| known.transaction <= transaction);
        if !is_right || id == 0 || !is_newer {
            return Ok(());
        }
        let block = (kind::ALL.contains(&kind) && !is_wiped).then(|| block.to_vec());
        self.kept += usize::from(block.is_some());
        if let Some(Version { block: Some(_), .. }) = self.versions.insert(id, Version { transaction, kind, block }) {
            self.kept -= 1;
        }
        match self.kept {
            0..=KEPT_MAX => Ok(()),
            _ => Err(Flaw::Unsupported(format!("a group with more than {KEPT_MAX} objects that describe its volumes"))),
        }
    }

    /// The block of an object of this kind; `None` if there is none, or it was wiped.
    pub fn get(&self, id: u64, kind: u16) -> Option<&[u8]> {
        self.versions.get(&id).filter(|version| version.kind == kind)?.block.as_deref()
    }

    /// The identifiers of all objects of this kind, in order.
    pub fn of_kind(&self, kind: u16) -> Vec<u64> {
        let of_kind =
            |(id, version): (&u64, &Version)| (version.kind == kind && version.block.is_some()).then_some(*id);
        let mut ids: Vec<_> = self.versions.iter().filter_map(of_kind).collect();
        ids.sort_unstable();
        ids
    }
}
