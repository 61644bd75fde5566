//! Finds the parent of a VHDX image ("VHDX Format Specification" 1.0, sections 2.2 and 2.6).

use cheetah_device::le::{u16_at, u32_at, u64_at};

use super::file::read;
use crate::clean::clean;
use crate::raw::RawFile;
use cheetah_error::Result;

/// The offset of the first region table; the second is a copy.
const REGIONS_AT: u64 = 192 << 10;
/// Bytes of a region table, and of a metadata table.
const TABLE_LEN: u64 = 64 << 10;
/// The identifier of the region with metadata, and of the item with the parent, as stored.
const METADATA: [u8; 16] =
    [0x06, 0xa2, 0x7c, 0x8b, 0x90, 0x47, 0x9a, 0x4b, 0xb8, 0xfe, 0x57, 0x5f, 0x05, 0x0f, 0x88, 0x6e];
const PARENT: [u8; 16] =
    [0x2d, 0x5f, 0xd3, 0xa8, 0x0b, 0xb3, 0x4d, 0x45, 0xab, 0xf7, 0xd3, 0xd8, 0x48, 0x34, 0xab, 0x0c];
/// The maximum number of entries that are looked at in a table.
const ENTRIES_MAX: usize = 2047;

/// Returns the path of the image that this one depends on, or an empty text if it is not recorded; `None` if there is no such
/// image.
pub(super) fn parent(file: &RawFile) -> Result<Option<String>> {
    let regions = read(file, REGIONS_AT, TABLE_LEN)?;
    if !regions.starts_with(b"regi") {
        return Ok(None);
    }
    let entry = |table: &[u8], (from, count): (usize, usize), id: [u8; 16]| {
        let entries = table.get(from..).unwrap_or_default().chunks_exact(32).take(count.min(ENTRIES_MAX));
        entries.filter(|entry| entry.starts_with(&id)).map(<[u8]>::to_vec).next()
    };
    let Some(region) = entry(&regions, (16, u32_at(&regions, 8) as usize), METADATA) else { return Ok(None) };
    let at = u64_at(&region, 16);
    let items = read(file, at, TABLE_LEN)?;
    let Some(item) = entry(&items, (32, u16_at(&items, 10).into()), PARENT) else { return Ok(None) };
    let locator = read(file, at.saturating_add(u32_at(&item, 16).into()), TABLE_LEN.min(u32_at(&item, 20).into()))?;
    Ok(Some(path_in(&locator).unwrap_or_default()))
}

/// The relative path in a parent locator, or any other.
fn path_in(locator: &[u8]) -> Option<String> {
    let text = |at: u32, len: u16| {
        let bytes = locator.get(at as usize..)?.get(..len.into())?;
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        Some(clean(&String::from_utf16_lossy(&units)))
    };
    let entries = locator.get(20..)?.chunks_exact(12).take(u16_at(locator, 18).into());
    let mut pairs = entries.filter_map(|entry| {
        let (key, value) = (text(u32_at(entry, 0), u16_at(entry, 8))?, text(u32_at(entry, 4), u16_at(entry, 10))?);
        key.ends_with("path").then_some((key, value))
    });
    let all: Vec<_> = pairs.by_ref().collect();
    all.iter().find(|(key, _)| key == "relative_path").or(all.first()).map(|(_, value)| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_parent_of_a_vhdx_is_named() {
        let mut image = vec![0; 1 << 20];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        let (regions, metadata, locator) = (192 << 10, 512 << 10, (512 << 10) + (64 << 10));
        put(regions, b"regi");
        put(regions + 8, &[1]);
        put(regions + 16, &METADATA);
        put(regions + 32, &(metadata as u64).to_le_bytes());
        put(metadata, b"metadata");
        put(metadata + 10, &[1]);
        put(metadata + 32, &PARENT);
        put(metadata + 48, &[65536u32, 200].map(u32::to_le_bytes).concat());
        put(locator + 18, &[1]);
        put(locator + 20, &[32u32, 64].map(u32::to_le_bytes).concat());
        put(locator + 28, &[26, 0, 18, 0]);
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        put(locator + 32, &utf16("relative_path"));
        put(locator + 64, &utf16("base.vhdx"));
        let parent = |bytes: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            parent(&RawFile::open(file.path()).unwrap()).unwrap()
        };
        assert_eq!(parent(&image).as_deref(), Some("base.vhdx"));
        assert_eq!(parent(&image[..locator + 30]).as_deref(), Some(""));
        image[metadata + 32] ^= 1;
        assert_eq!(parent(&image), None);
        for len in [1, regions + 10, metadata + 20] {
            assert_eq!(parent(&image[..len]), None);
        }
    }
}
