//! The header of a physical volume, of which there is a copy at the end.

use cheetah_device::le::{u16_at, u32_at, u64_at};
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use crc_fast::checksum;

use super::super::part::Part;
use super::super::{Flaw, Result, Uuid};
use crate::checks::Checks;

const HEADER_BYTES: u64 = 512;
const VERSION: u16 = 1;
const KIND: u16 = 0x10;
/// The cipher of the metadata: AES-XTS, with keys of as many bytes.
const AES_XTS: u32 = 2;
const KEY_BYTES: u32 = 16;
/// Places of the copies of the label, and how many there are room for.
const LABELS_AT: usize = 104;
const LABELS_MAX: u16 = 8;
const BLOCK_BYTES_MAX: u64 = 64 << 10;

const DAMAGED: Flaw = Flaw::Damaged("no copy of its header is whole");

/// What the header of a physical volume says.
pub(super) struct Header {
    pub id: Uuid,
    pub block_bytes: u64,
    /// Where the copies of the label begin, in bytes from the start of the volume.
    pub labels_at: Vec<u64>,
    /// The key of the metadata.
    pub key: [u8; 16],
}

impl Header {
    /// Reads the header, or its copy if it is damaged.
    pub async fn read(part: &Part<'_>, checks: Checks) -> Result<Self> {
        let copy_at = part.range.len.saturating_sub(HEADER_BYTES);
        let mut found = Err(DAMAGED);
        for at in [0, copy_at] {
            found = match part.read(at, HEADER_BYTES).await {
                Ok(sector) => Self::parse(&sector, checks),
                Err(why) => Err(why),
            };
            if !matches!(found, Err(Flaw::Damaged(_) | Flaw::Unread(_))) {
                break;
            }
        }
        found
    }

    fn parse(sector: &[u8], checks: Checks) -> Result<Self> {
        let is_header = sector.get(88..90) == Some(b"CS") && (u16_at(sector, 8), u16_at(sector, 10)) == (VERSION, KIND);
        if !is_header || checks == Checks::Compared && !is_whole(sector) {
            return Err(DAMAGED);
        }
        let (key_bytes, method) = (u32_at(sector, 168), u32_at(sector, 172));
        if (key_bytes, method) != (KEY_BYTES, AES_XTS) {
            return Err(Flaw::Unsupported(format!("method {method} of its metadata with a key of {key_bytes} bytes")));
        }
        let block_bytes = u64::from(u32_at(sector, 96));
        if !block_bytes.is_power_of_two() || !(HEADER_BYTES..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(Flaw::Damaged("the size of its blocks is wrong"));
        }
        let (Some(id), Some(Uuid(key))) = (Uuid::at(sector, 304), Uuid::at(sector, 176)) else { return Err(DAMAGED) };
        let labels = usize::from(u16_at(sector, 94).min(LABELS_MAX));
        let labels_at =
            (0..labels).filter_map(|number| u64_at(sector, LABELS_AT + 8 * number).checked_mul(block_bytes));
        Ok(Self { id, block_bytes, labels_at: labels_at.filter(|at| *at > 0).collect(), key })
    }
}

/// Whether a header or a block of metadata has the checksum that it states: CRC-32C, whose register is not inverted at its end.
pub(super) fn is_whole(block: &[u8]) -> bool {
    let sum = block.get(8..).map(|content| u64::from(u32::MAX) ^ checksum(Crc32Iscsi, content));
    u32_at(block, 4) == u32::MAX && sum == Some(u64::from(u32_at(block, 0)))
}
