//! A hit.

use crate::encoding::TextEncoding;
use crate::text::shown;

/// What a hit takes beside its bytes and its context: its numbers and names.
pub(crate) const HIT_BYTES: usize = 100;

/// A place in the device where a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The offset of its first byte.
    pub offset: u64,
    /// Its pattern, as an index of [`Search::patterns`](crate::Search::patterns).
    pub pattern: usize,
    /// The encoding in which it was searched.
    pub encoding: TextEncoding,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The bytes before it that could be read, up to those asked for.
    pub before: Vec<u8>,
    /// The bytes after it that could be read, up to those asked for.
    pub after: Vec<u8>,
}

/// A hit inside compressed data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerHit {
    /// The offset in the device at which the compressed data begin.
    pub offset: u64,
    /// The way from there: the kind of data, and the offset of the hit in what they hold, such as `GZIP-512`. Of data within data, one
    /// after the other: `ZIP-70-GZIP-512`. After the offset and a `-`, it is a forensic path of `bulk_extractor`.
    pub inside: String,
    /// The hit, with its offset in what was unpacked.
    pub hit: Hit,
}

impl Hit {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Always false: a hit has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// About what it takes to keep or to send it: its bytes, its context, its numbers and names.
    pub fn room_bytes(&self) -> usize {
        self.before.len() + self.bytes.len() + self.after.len() + HIT_BYTES
    }

    /// The text of its bytes; see [`Search::text`](crate::Search::text) for what they say. Control characters, and bytes that are no text, are shown as `\xNN`.
    pub fn text(&self) -> String {
        shown(&self.bytes, self.encoding)
    }

    /// The text around it, itself included.
    pub fn context(&self) -> String {
        shown(&[self.before.as_slice(), &self.bytes, &self.after].concat(), self.encoding)
    }
}
