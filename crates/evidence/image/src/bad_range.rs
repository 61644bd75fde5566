//! Ranges that a source does not yield.

use std::sync::Arc;

use cheetah_device::ByteRange;
use serde::{Deserialize, Serialize};

/// A range of which there is no content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BadRange {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The source's error.
    pub why: Arc<str>,
    /// Whether it is corrupt in the image: the image could be read there, and does not match its own checksum or cannot be
    /// decompressed. Otherwise it could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub corrupt: bool,
}

impl BadRange {
    /// Returns the range.
    pub const fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.len)
    }

    /// Returns what it is, for a sentence.
    pub const fn is(&self) -> &'static str {
        if self.corrupt { "corrupt in the image" } else { "unreadable" }
    }

    /// Appends to `list`, merging with its last where they touch.
    pub fn push(self, list: &mut Vec<Self>) {
        match list.last_mut() {
            Some(last) if last.range().end() == self.offset && last.corrupt == self.corrupt => last.len += self.len,
            _ => list.push(self),
        }
    }

    /// Returns the number of bytes in all of `ranges`, and how many of them are corrupt.
    pub fn missing_bytes(ranges: &[Self]) -> (u64, u64) {
        let corrupt = ranges.iter().filter(|bad| bad.corrupt);
        (ranges.iter().map(|bad| bad.len).sum(), corrupt.map(|bad| bad.len).sum())
    }
}
