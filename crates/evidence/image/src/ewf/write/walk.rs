//! The chain of sections in a file written by this module.

use std::fs::File;

use cheetah_kit::file::FileExt as _;
use libdeflater::adler32;

use crate::ewf::text::inflate;

use super::sections::{DESCRIPTOR_BYTES, FILE_HEADER_BYTES, GUID_AT};

/// The most bytes of a header that are read.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// A section.
#[derive(Debug, PartialEq, Eq)]
pub struct WrittenSection {
    /// `table`, `volume` …
    pub kind: String,
    /// The offset of its content.
    pub content: u64,
    /// The offset of the next section.
    pub next: u64,
}

/// The sections of `file`, up to the first with a wrong checksum: not yet written, or damaged.
pub fn walk(file: &File) -> impl Iterator<Item = WrittenSection> {
    let mut at = FILE_HEADER_BYTES;
    std::iter::from_fn(move || {
        let section = section(file, at)?;
        // The last section points to itself.
        let on = section.next >= section.content;
        at = section.next;
        on.then_some(section)
    })
}

/// The section whose descriptor is at `at`, if its checksum is right.
fn section(file: &File, at: u64) -> Option<WrittenSection> {
    let mut bytes = [0; DESCRIPTOR_BYTES as usize];
    file.read_exact_at(&mut bytes, at).ok()?;
    let (described, sum) = bytes.split_at(72);
    if adler32(described).to_le_bytes() != *sum {
        return None;
    }
    let kind = described[..16].iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    let next = u64::from_le_bytes(described[16..24].try_into().ok()?);
    Some(WrittenSection { kind, content: at + DESCRIPTOR_BYTES, next })
}

/// Whether the set ends with this segment, so that it is finished.
pub fn is_done(file: &File) -> bool {
    let at = walk(file).last().map_or(FILE_HEADER_BYTES, |last| last.next);
    section(file, at).is_some_and(|last| last.kind == "done")
}

/// The name and version of the program that wrote the set whose first segment this is, as its header says.
pub fn software(file: &File) -> Option<String> {
    let header = walk(file).find(|section| section.kind == "header")?;
    let len = header.next.saturating_sub(header.content).min(HEADER_BYTES_MAX);
    let mut packed = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut packed, header.content).ok()?;
    let text = String::from_utf8_lossy(&inflate(&packed)?).into_owned();
    let mut lines = text.split("\r\n").skip(2);
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split('\t').position(|name| name == "av")?;
    values.split('\t').nth(place).map(str::to_owned)
}

/// The GUID of the set a segment belongs to.
pub fn guid(file: &File) -> Option<[u8; 16]> {
    let volume = walk(file).find(|section| matches!(section.kind.as_str(), "volume" | "data"))?;
    let mut guid = [0; 16];
    file.read_exact_at(&mut guid, volume.content + GUID_AT as u64).ok()?;
    Some(guid)
}
