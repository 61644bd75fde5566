//! The parts of a volume: its beginning, which lies elsewhere; what BitLocker keeps in it; and the rest.

use cheetah_device::ByteRange;

use super::boot::Boot;
use super::metadata::{METADATA_BYTES_MAX, Metadata};
use crate::opened::{Content, Region};
use crate::refusal::{Refusal, Result};

/// Bytes of a place of the metadata of Windows Vista, which has whole clusters.
const VISTA_METADATA_BYTES: u64 = 16 << 10;
/// The sectors at the start of a volume that Windows Vista does not encrypt.
const VISTA_CLEAR_SECTORS: u64 = 16;

/// Returns the parts of the volume in `range`. The places of the metadata read as zeros, as in Windows.
pub(super) fn regions(metadata: &Metadata, boot: &Boot, range: ByteRange) -> Result<Vec<Region>> {
    let overlap = Refusal::Damaged("places in its metadata overlap");
    let is_clear = metadata.is_decrypted();
    let whole = ByteRange::new(0, range.len);
    let (mut special, metadata_bytes) = match boot.before(metadata.header_at) {
        Some(sector) => {
            let metadata_bytes = VISTA_METADATA_BYTES.next_multiple_of(boot.cluster_bytes.max(1));
            (beginning_of_vista(sector, boot, range)?, metadata_bytes)
        }
        None => (beginning(metadata, range)?, METADATA_BYTES_MAX),
    };
    for at in metadata.metadata_at.iter().filter(|at| **at > 0) {
        // A volume that was cut off may have lost one.
        let place = ByteRange::new(*at, metadata_bytes).intersection(whole);
        special.extend(place.map(|place| (place, Content::Zeros)));
    }
    special.sort_by_key(|(place, _)| *place);
    let encrypted = match metadata.encrypted_bytes {
        _ if is_clear => 0,
        0 => range.len,
        bytes => bytes.min(range.len),
    };
    // A sector that is not whole is no sector of the volume.
    let encrypted = encrypted - encrypted % boot.sector_bytes.max(1);
    let mut regions = Vec::new();
    let mut at = 0;
    for (place, content) in special {
        if place.offset < at {
            return Err(overlap);
        }
        usual(&mut regions, range.offset, ByteRange::between(at, place.offset), encrypted);
        regions.push(Region { range: place.shifted(range.offset), content });
        at = place.end();
    }
    usual(&mut regions, range.offset, ByteRange::between(at, range.len), encrypted);
    Ok(regions)
}

/// The beginning of a volume, which lies elsewhere, and that place, which reads as zeros.
fn beginning(metadata: &Metadata, range: ByteRange) -> Result<Vec<(ByteRange, Content)>> {
    let beginning = ByteRange::new(0, metadata.header_bytes);
    let apart = ByteRange::new(metadata.header_at, metadata.header_bytes);
    if beginning.is_empty() || !apart.fits(range.len) {
        return Err(Refusal::Damaged("it names a place beyond its end"));
    }
    let below = range.offset + apart.offset;
    let moved =
        if metadata.is_decrypted() { Content::Clear { below } } else { Content::encrypted(below, range.offset) };
    Ok(vec![(beginning, moved), (apart, Content::Zeros)])
}

/// The beginning of a volume of Windows Vista: the boot sector as it was, and sectors that are not encrypted.
fn beginning_of_vista(sector: Vec<u8>, boot: &Boot, range: ByteRange) -> Result<Vec<(ByteRange, Content)>> {
    let clear = VISTA_CLEAR_SECTORS * boot.sector_bytes;
    let (first, rest) = (ByteRange::new(0, sector.len() as u64), ByteRange::between(sector.len() as u64, clear));
    if clear <= first.len || clear > range.len {
        return Err(Refusal::Damaged("it is shorter than its beginning"));
    }
    let below = range.offset + rest.offset;
    Ok(vec![(first, Content::Stated(sector.into())), (rest, Content::Clear { below })])
}

/// Adds a part of the volume at `start` of which the bytes before `encrypted` are that.
fn usual(regions: &mut Vec<Region>, start: u64, part: ByteRange, encrypted: u64) {
    let border = encrypted.clamp(part.offset, part.end());
    let (sealed, clear) = (ByteRange::between(part.offset, border), ByteRange::between(border, part.end()));
    for (part, is_sealed) in [(sealed, true), (clear, false)] {
        if !part.is_empty() {
            let range = part.shifted(start);
            let below = range.offset;
            let content = if is_sealed { Content::encrypted(below, start) } else { Content::Clear { below } };
            regions.push(Region { range, content });
        }
    }
}
