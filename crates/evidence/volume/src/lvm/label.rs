//! The label of a physical volume, and the header of a metadata area.

use cheetah_device::ByteRange;
use cheetah_device::le::{u32_at, u64_at};
use crc_fast::{CrcAlgorithm, Digest};

use crate::checks::Checks;

/// The part of a physical volume that is searched for its label: its first four sectors.
pub(super) const LABEL_BYTES: u64 = 4 * SECTOR;
/// The length of the header of a metadata area. The text follows it.
pub(super) const HEADER_BYTES: u64 = SECTOR;
/// The longest text of metadata. That of a group with a thousand volumes has less than one MiB.
pub(super) const TEXT_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of metadata areas of a physical volume that are read. LVM2 makes at most two.
const AREAS_MAX: usize = 2;

const SECTOR: u64 = super::SECTOR_BYTES;
const MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
/// The state in which LVM2's checksum begins.
const CHECKSUM_START: u64 = 0xf597_a6cf;
/// A text that its writer marked as one to ignore.
const IGNORED: u32 = 1;

/// The label of a physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    /// The identifier, without hyphens.
    pub id: String,
    /// Its metadata areas, in offsets of the physical volume.
    pub areas: Vec<ByteRange>,
}

/// Finds the label in the first sectors of a volume; `None` if it is no physical volume.
pub(super) fn parse_label(start: &[u8], checks: Checks) -> Option<Result<Label, &'static str>> {
    let is_label = |sector: &&[u8]| sector.starts_with(b"LABELONE") && sector[24..32] == *b"LVM2 001";
    let sector = start.chunks_exact(SECTOR as usize).find(is_label)?;
    if checks == Checks::Compared && checksum(&[&sector[20..]]) != u32_at(sector, 16) {
        return Some(Err("the checksum of its label is wrong"));
    }
    Some(label(sector).ok_or("its label is damaged"))
}

fn label(sector: &[u8]) -> Option<Label> {
    let header = sector.get(u32_at(sector, 20) as usize..)?;
    let id = header.get(..32).filter(|id| id.iter().all(u8::is_ascii_alphanumeric))?;
    // Two lists of places, each with an end: where data lies, and where metadata does.
    let places = header.get(40..)?.chunks_exact(16).map(|place| (u64_at(place, 0), u64_at(place, 8)));
    let after_data = places.skip_while(|(offset, _)| *offset != 0).skip(1);
    let areas = after_data.take_while(|(offset, _)| *offset != 0).take(AREAS_MAX);
    let areas = areas.filter(|(offset, len)| *len > HEADER_BYTES && offset.checked_add(*len).is_some());
    let areas = areas.map(|(offset, len)| ByteRange::new(offset, len)).collect();
    Some(Label { id: String::from_utf8_lossy(id).into_owned(), areas })
}

/// Where the text of a metadata area lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    /// Its parts in order, in offsets of the physical volume: it goes on at the start of its buffer.
    pub parts: Vec<ByteRange>,
    checksum: u32,
}

/// Parses the header of the metadata `area`; `None` if there is no text in it: the physical volume is in no group, or the
/// text lies elsewhere.
pub(super) fn parse_header(header: &[u8], area: ByteRange, checks: Checks) -> Result<Option<Text>, &'static str> {
    let Some(header) = header.get(..HEADER_BYTES as usize) else { return Err("a metadata area is cut short") };
    if checks == Checks::Compared && checksum(&[&header[4..]]) != u32_at(header, 0) {
        return Err("the checksum of a metadata area is wrong");
    }
    if header[4..20] != *MAGIC || u32_at(header, 20) != 1 || u64_at(header, 24) != area.offset {
        return Err("a metadata area has no header");
    }
    let (offset, len, flags) = (u64_at(header, 40), u64_at(header, 48), u32_at(header, 60));
    if offset == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    let buffer = ByteRange::new(HEADER_BYTES, area.len - HEADER_BYTES);
    if len == 0 || len > TEXT_BYTES_MAX.min(buffer.len) || offset < buffer.offset || offset >= buffer.end() {
        return Err("the text of a metadata area lies outside of it");
    }
    let first = len.min(buffer.end() - offset);
    let parts = [ByteRange::new(offset, first), ByteRange::new(buffer.offset, len - first)];
    let parts = parts.into_iter().filter(|part| !part.is_empty()).map(|part| part.shifted(area.offset)).collect();
    Ok(Some(Text { parts, checksum: u32_at(header, 56) }))
}

impl Text {
    /// Whether `parts` are its bytes.
    pub fn has_right(&self, parts: &[&[u8]]) -> bool {
        checksum(parts) == self.checksum
    }
}

/// LVM2's checksum: CRC-32 that begins in another state and is not inverted.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, CHECKSUM_START);
    parts.iter().for_each(|part| digest.update(part));
    // Not truncated: it has 32 bits.
    !(digest.finalize() as u32)
}
