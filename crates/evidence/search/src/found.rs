//! What the engines find.

use crate::encoding::TextEncoding;

/// The maximum length of a match, in bytes.
pub const MATCH_BYTES_MAX: usize = 8192;

/// A match in a window.
pub struct Found {
    /// The index of its first byte.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// Its pattern, counted among those of its kind.
    pub pattern: u32,
    /// Its encoding.
    pub encoding: TextEncoding,
}

/// An index as it is stored. Orders have a maximum size, so it fits.
pub fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
