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
