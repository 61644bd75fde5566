//! A node of a tree: keys and values, which a table of contents names.

use cheetah_device::le::{u16_at, u32_at};

/// Bytes before the table of contents, and behind the values of a root.
const HEADER_BYTES: usize = 56;
const FOOTER_BYTES: usize = 40;
/// The fewest bytes of an entry of the table.
const ENTRY_BYTES_MIN: usize = 4;
/// What has no value.
const NOWHERE: u16 = 0xffff;

mod flag {
    pub const ROOT: u16 = 1;
    pub const LEAF: u16 = 2;
    /// Keys and values have one length.
    pub const FIXED: u16 = 4;
}

/// A node of a tree.
pub(super) struct Node<'a> {
    bytes: &'a [u8],
    flags: u16,
    /// The levels below it.
    pub level: u16,
}

impl<'a> Node<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, flags: u16_at(bytes, 32), level: u16_at(bytes, 34) }
    }

    pub fn is_leaf(&self) -> bool {
        self.flags & flag::LEAF != 0
    }

    /// The keys and values. Where their lengths are fixed, these are they. `None` if one lies outside of the node.
    pub fn entries(&self, key_bytes: usize, value_bytes: usize) -> Option<Vec<(&'a [u8], &'a [u8])>> {
        let bytes = self.bytes;
        let table = HEADER_BYTES + usize::from(u16_at(bytes, 40));
        let keys = table + usize::from(u16_at(bytes, 42));
        let end = bytes.len().checked_sub(if self.flags & flag::ROOT != 0 { FOOTER_BYTES } else { 0 })?;
        let (count, is_fixed) = (u32_at(bytes, 36) as usize, self.flags & flag::FIXED != 0);
        if count > bytes.len() / ENTRY_BYTES_MIN {
            return None;
        }
        let entry = |number: usize| {
            let entry_bytes = if is_fixed { ENTRY_BYTES_MIN } else { 2 * ENTRY_BYTES_MIN };
            let entry = bytes.get(table + number * entry_bytes..)?.get(..entry_bytes)?;
            let (key_len, value_at, value_len) = match is_fixed {
                true => (key_bytes, u16_at(entry, 2), value_bytes),
                false => (usize::from(u16_at(entry, 2)), u16_at(entry, 4), usize::from(u16_at(entry, 6))),
            };
            let key = bytes.get(keys + usize::from(u16_at(entry, 0))..)?.get(..key_len)?;
            // Values are counted from the end.
            let value = match value_at {
                NOWHERE => &[][..],
                at => bytes.get(end.checked_sub(usize::from(at))?..)?.get(..value_len)?,
            };
            Some((key, value))
        };
        (0..count).map(entry).collect()
    }
}
