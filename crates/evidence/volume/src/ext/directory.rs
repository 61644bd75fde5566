//! Directory entries: names and inode numbers.

use cheetah_device::le::{u16_at, u32_at};

/// The minimum size and the alignment of an entry, in bytes.
const ENTRY_BYTES_MIN: usize = 12;
pub(super) const ENTRY_ALIGNMENT: u64 = 4;

/// An entry in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its offset in the block.
    pub at: u64,
    pub inode: u32,
    /// Whether it may name a regular file, or a directory; not all file systems record the type.
    pub may_be_regular: bool,
    pub may_be_directory: bool,
}

/// The entries in a block of a directory, without `.` and `..`. An index block looks like one empty entry.
pub(super) fn entries(block: &[u8]) -> impl Iterator<Item = Entry> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = block.get(at..).filter(|bytes| bytes.len() >= ENTRY_BYTES_MIN)?;
        // A length of 64 KiB does not fit into the field, which encodes it differently.
        let long = usize::from(u16_at(bytes, 4));
        let len = if long == 0 || long == 0xffff { 1 << 16 } else { (long & !3) | (long & 3) << 16 };
        let start = at;
        at = at.checked_add(len.max(ENTRY_BYTES_MIN))?;
        let [_, _, _, _, _, _, name_len, kind, name @ ..] = bytes else { return None };
        let name = name.get(..usize::from(*name_len)).unwrap_or_default();
        let is_used = u32_at(bytes, 0) != 0 && !name.is_empty() && name != b"." && name != b"..";
        Some(is_used.then(|| Entry {
            at: start as u64,
            inode: u32_at(bytes, 0),
            may_be_regular: matches!(kind, 0 | 1),
            may_be_directory: matches!(kind, 0 | 2),
        }))
    })
    .flatten()
}
