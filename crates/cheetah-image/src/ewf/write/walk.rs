//! The chain of sections in a file written by this module.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use libdeflater::adler32;

use super::sections::{DESCRIPTOR_BYTES, FILE_HEADER_BYTES, GUID_AT};

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
        let mut bytes = [0; DESCRIPTOR_BYTES as usize];
        file.read_exact_at(&mut bytes, at).ok()?;
        let (described, sum) = bytes.split_at(72);
        if adler32(described).to_le_bytes() != *sum {
            return None;
        }
        let kind = described[..16].iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
        let next = u64::from_le_bytes(described[16..24].try_into().ok()?);
        let section = WrittenSection { kind, content: at + DESCRIPTOR_BYTES, next };
        // The last section points to itself.
        let on = next >= section.content;
        at = next;
        on.then_some(section)
    })
}

/// The GUID of the set a segment belongs to.
pub fn guid(file: &File) -> Option<[u8; 16]> {
    let volume = walk(file).find(|section| matches!(section.kind.as_str(), "volume" | "data"))?;
    let mut guid = [0; 16];
    file.read_exact_at(&mut guid, volume.content + GUID_AT as u64).ok()?;
    Some(guid)
}
