//! Splits segments of version 1 into sections, and builds changed ones.

use std::ops::Range;

use libdeflater::adler32;

pub const DESCRIPTOR: usize = 76;

#[derive(Debug, Clone)]
pub struct Section {
    pub name: String,
    /// The offset of its descriptor.
    pub start: usize,
    pub data: Range<usize>,
}

/// The sections of a segment, in order.
pub fn sections(bytes: &[u8]) -> Vec<Section> {
    let (mut sections, mut at) = (Vec::new(), 13);
    loop {
        let name: String = bytes[at..at + 16].iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
        let next = u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap()) as usize;
        let last = ["next", "done"].contains(&name.as_str());
        let data = at + DESCRIPTOR..if last { at + DESCRIPTOR } else { next };
        sections.push(Section { name, start: at, data });
        if last {
            return sections;
        }
        at = next;
    }
}

/// The first section of that name.
pub fn find(bytes: &[u8], name: &str) -> Section {
    sections(bytes).into_iter().find(|section| section.name == name).unwrap()
}

/// Appends the Adler-32 of the preceding bytes.
pub fn seal(bytes: &mut [u8]) {
    let (before, sum) = bytes.split_last_chunk_mut().unwrap();
    *sum = adler32(before).to_le_bytes();
}

/// A section descriptor.
pub fn descriptor(name: &str, next: usize, size: usize) -> [u8; DESCRIPTOR] {
    let mut bytes = [0; DESCRIPTOR];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes[16..24].copy_from_slice(&(next as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&(size as u64).to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// Puts a section before the last one.
pub fn insert(bytes: &mut Vec<u8>, name: &str, data: &[u8]) {
    let done = sections(bytes).pop().unwrap();
    bytes.truncate(done.start);
    let size = DESCRIPTOR + data.len();
    let end = done.start + size;
    bytes.extend_from_slice(&descriptor(name, end, size));
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&descriptor(&done.name, end, 0));
}

/// The data of an error section.
pub fn errors(ranges: &[(u32, u32)]) -> Vec<u8> {
    let mut data = vec![0; 520];
    data[..4].copy_from_slice(&(ranges.len() as u32).to_le_bytes());
    seal(&mut data);
    let mut entries: Vec<u8> =
        ranges.iter().flat_map(|(at, count)| [at.to_le_bytes(), count.to_le_bytes()]).flatten().collect();
    entries.extend([0; 4]);
    seal(&mut entries);
    [data, entries].concat()
}
