//! The parts of a volume: its beginning, which lies elsewhere; what BitLocker keeps in it; and the rest.

use cheetah_device::ByteRange;

use super::boot::Boot;
use super::metadata::{METADATA_BYTES_MAX, Metadata};
use crate::opened::{Content, Region};
use crate::refusal::{Refusal, Result};

/// Returns the parts of the volume in `range`. The places of the metadata read as zeros, as in Windows.
pub(super) fn regions(metadata: &Metadata, boot: &Boot, range: ByteRange) -> Result<Vec<Region>> {
    let overlap = Refusal::Damaged("places in its metadata overlap");
    let beyond = Refusal::Damaged("it names a place beyond its end");
    let is_clear = metadata.is_decrypted();
    let whole = ByteRange::new(0, range.len);
    let beginning = ByteRange::new(0, metadata.header_bytes);
    let apart = ByteRange::new(metadata.header_at, metadata.header_bytes);
    if beginning.is_empty() || !apart.fits(range.len) {
        return Err(beyond);
    }
    let below = range.offset + apart.offset;
    let moved = if is_clear { Content::Clear { below } } else { Content::Encrypted { below } };
    let mut special = vec![(beginning, moved), (apart, Content::Zeros)];
    for at in metadata.metadata_at.iter().filter(|at| **at > 0) {
        // A volume that was cut off may have lost one.
        let place = ByteRange::new(*at, METADATA_BYTES_MAX).intersection(whole);
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

/// Adds a part of the volume at `start` of which the bytes before `encrypted` are that.
fn usual(regions: &mut Vec<Region>, start: u64, part: ByteRange, encrypted: u64) {
    let border = encrypted.clamp(part.offset, part.end());
    let (sealed, clear) = (ByteRange::between(part.offset, border), ByteRange::between(border, part.end()));
    for (part, is_sealed) in [(sealed, true), (clear, false)] {
        if !part.is_empty() {
            let range = part.shifted(start);
            let below = range.offset;
            let content = if is_sealed { Content::Encrypted { below } } else { Content::Clear { below } };
            regions.push(Region { range, content });
        }
    }
}
