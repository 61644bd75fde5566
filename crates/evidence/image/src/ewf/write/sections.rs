//! Encoding of an E01's sections, after Joachim Metz, "Expert Witness Compression Format specification" (libewf), and
//! the output of `ewfacquire -f encase6`.

use libdeflater::adler32;

use super::checkpoint::Shape;
use super::options::{E01Options, Media};
use super::text;
use crate::hash::{Hashes, unhex};
use cheetah_error::{Error, Result};

/// The size of a segment file's header.
pub const FILE_HEADER_BYTES: u64 = 13;
/// The size of a section's descriptor.
pub const DESCRIPTOR_BYTES: u64 = 76;
/// The size of the content of the volume and data sections.
pub const VOLUME_BYTES: usize = 1052;
/// The offset of the set's GUID in that content.
pub const GUID_AT: usize = 64;
/// The number of entries in a table that every reader accepts. EnCase 6 and later read up to 65534.
pub const ENTRIES_MAX: usize = 16375;
/// The size of a table's header.
pub const TABLE_HEADER_BYTES: u64 = 24;
/// Flag in a table's entry: the chunk is compressed.
pub const COMPRESSED: u32 = 1 << 31;

/// The size of a section `table` or `table2` with `entries` entries, including the descriptor.
pub const fn table_bytes(entries: usize) -> u64 {
    DESCRIPTOR_BYTES + TABLE_HEADER_BYTES + 4 * entries as u64 + 4
}

/// The first bytes of segment file `number`.
pub fn file_header(number: u16) -> Vec<u8> {
    let mut bytes = b"EVF\x09\x0d\x0a\xff\x00\x01".to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// The descriptor of a section that starts at `at` in its file and has `size` bytes, including the descriptor.
pub fn descriptor(kind: &str, at: u64, size: u64) -> Vec<u8> {
    describe(kind, at + size, size)
}

/// The sections `next` and `done`, which end a file: they point to themselves and have no size.
pub fn ending(kind: &str, at: u64) -> Vec<u8> {
    describe(kind, at, 0)
}

fn describe(kind: &str, next: u64, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; 72];
    bytes[..kind.len()].copy_from_slice(kind.as_bytes());
    bytes[16..24].copy_from_slice(&next.to_le_bytes());
    bytes[24..32].copy_from_slice(&size.to_le_bytes());
    summed(bytes)
}

/// A whole section that starts at `at`.
pub fn section(kind: &str, at: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = descriptor(kind, at, DESCRIPTOR_BYTES + content.len() as u64);
    bytes.extend_from_slice(content);
    bytes
}

/// Appends the Adler-32 of `bytes`.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = adler32(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The start of the first segment: file header, `header2` twice, `header`, `volume`.
pub fn first_head(options: &E01Options, volume: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = file_header(1);
    let header2 = text::deflated(&text::header2(options))?;
    let header = text::deflated(&text::header(options))?;
    for (kind, content) in [("header2", &header2[..]), ("header2", &header2), ("header", &header), ("volume", volume)] {
        let at = bytes.len() as u64;
        bytes.extend(section(kind, at, content));
    }
    Ok(bytes)
}

/// The start of every other segment: file header and `data`.
pub fn later_head(number: u16, volume: &[u8]) -> Vec<u8> {
    let mut bytes = file_header(number);
    bytes.extend(section("data", FILE_HEADER_BYTES, volume));
    bytes
}

/// The content of the sections `volume` and `data`.
pub fn volume(options: &E01Options, shape: &Shape) -> Result<Vec<u8>> {
    let Shape { size, chunk_sectors, sector_size, guid, .. } = *shape;
    let chunk_bytes = shape.chunk_bytes();
    let chunks = u32::try_from(size.div_ceil(chunk_bytes)).map_err(|_| {
        Error::misuse(format!("{size} bytes make more chunks than an E01 image can have; choose larger chunks"))
    })?;
    let mut bytes = vec![0; VOLUME_BYTES - 4];
    bytes[0] = match options.media {
        Media::Removable => 0,
        Media::Fixed => 1,
        Media::Optical => 3,
        Media::Memory => 0x10,
    };
    bytes[4..8].copy_from_slice(&chunks.to_le_bytes());
    bytes[8..12].copy_from_slice(&chunk_sectors.to_le_bytes());
    bytes[12..16].copy_from_slice(&sector_size.to_le_bytes());
    bytes[16..24].copy_from_slice(&(size / u64::from(sector_size)).to_le_bytes());
    // Bit 0: an image file. Bit 1: of a whole device. Bit 2: read through a write blocker (Fastbloc's flag).
    bytes[36] = 1 | u8::from(options.physical) << 1 | u8::from(options.write_blocked) << 2;
    bytes[52] = match options.compression.level() {
        0 => 0,
        1..=6 => 1,
        _ => 2,
    };
    // The error granularity: one sector.
    bytes[56..60].copy_from_slice(&1u32.to_le_bytes());
    bytes[GUID_AT..GUID_AT + 16].copy_from_slice(&guid);
    Ok(summed(bytes))
}

/// The content of the sections `table` and `table2`: entries are relative to `base` in the file.
pub fn table(base: u64, entries: &[u32]) -> Vec<u8> {
    let mut header = vec![0; 20];
    // At most ENTRIES_MAX.
    header[0..4].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    header[8..16].copy_from_slice(&base.to_le_bytes());
    let mut bytes = summed(header);
    bytes.extend(summed(entries.iter().flat_map(|entry| entry.to_le_bytes()).collect()));
    bytes
}

/// The content of the section `error2`: unreadable runs of sectors, as first and count.
pub fn errors(runs: &[(u32, u32)]) -> Result<Vec<u8>> {
    let count = u32::try_from(runs.len()).map_err(|_| Error::failed("more unreadable runs than an E01 can list"))?;
    let mut header = vec![0; 516];
    header[0..4].copy_from_slice(&count.to_le_bytes());
    let mut bytes = summed(header);
    let runs = runs.iter().flat_map(|(first, count)| [first.to_le_bytes(), count.to_le_bytes()]);
    bytes.extend(summed(runs.flatten().collect()));
    Ok(bytes)
}

/// The sections `digest` and `hash` for the known hashes, starting at `at`.
pub fn digests(hashes: &Hashes, mut at: u64) -> Result<Vec<u8>> {
    let md5 = hashes.md5.as_deref().map(digest::<16>).transpose()?;
    let sha1 = hashes.sha1.as_deref().map(digest::<20>).transpose()?;
    let mut bytes = Vec::new();
    if md5.is_some() || sha1.is_some() {
        let mut content = vec![0; 76];
        content[..16].copy_from_slice(&md5.unwrap_or_default());
        content[16..36].copy_from_slice(&sha1.unwrap_or_default());
        bytes = section("digest", at, &summed(content));
        at += bytes.len() as u64;
    }
    if let Some(md5) = md5 {
        let mut content = vec![0; 32];
        content[..16].copy_from_slice(&md5);
        bytes.extend(section("hash", at, &summed(content)));
    }
    Ok(bytes)
}

fn digest<const N: usize>(text: &str) -> Result<[u8; N]> {
    let bytes = unhex(text).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::misuse(format!("'{text}' is not a digest of {N} bytes")))
}
