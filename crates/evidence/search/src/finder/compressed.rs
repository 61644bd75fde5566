//! Compressed data: where they begin.

use std::str::FromStr;

use super::files::FileKind;
use crate::expression::{Candidate, Check};

cheetah_kit::named! {
    /// A kind of compressed data that its first bytes tell.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Compressed {
        /// A member of a gzip file (RFC 1952).
        Gzip = "gzip",
        /// A deflated file in a ZIP archive (APPNOTE), such as the parts of a document of an office program.
        Zip = "zip",
        /// A stream of a PDF with the filter FlateDecode (ISO 32000, RFC 1950).
        Pdf = "pdf",
    }
}

/// A text that names no kind of compressed data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no kind of compressed data that can be searched: use {names}", names = names())]
pub struct UnknownCompressed(String);

impl Compressed {
    /// The name of its finder: a file has one header, and may have many of these.
    pub(super) const fn finder_name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip-data",
            Self::Zip => "zip-data",
            Self::Pdf => "pdf-data",
        }
    }

    /// The expression of its beginning, over bytes, and the check of each match.
    pub(super) const fn rule(self) -> (&'static str, Check) {
        match self {
            Self::Gzip => FileKind::Gzip.rule(),
            // Like a header of ZIP, with the method 8: deflate.
            Self::Zip => (r"PK\x03\x04[\x0a-\x3f]\x00[\x00-\x0f][\x00-\x28]\x08\x00", super::files::whole),
            Self::Pdf => (r"stream\r?\n[\x08\x18\x28\x38\x48\x58\x68\x78][\x00-\xff]", stream),
        }
    }
}

/// A stream that begins with a header of zlib (RFC 1950, section 2.2): a method, flags, and a check of both.
fn stream(candidate: &Candidate<'_>) -> Option<usize> {
    const NEEDS_DICTIONARY: u8 = 0x20;
    let [.., method, flags] = *candidate.text else { return None };
    let is_header = u16::from_be_bytes([method, flags]).is_multiple_of(31) && flags & NEEDS_DICTIONARY == 0;
    // "endstream" ends one.
    (is_header && candidate.before != Some(b'd')).then_some(candidate.text.len())
}

fn names() -> String {
    cheetah_error::list(&Compressed::ALL.map(Compressed::name))
}

impl FromStr for Compressed {
    type Err = UnknownCompressed;

    fn from_str(text: &str) -> Result<Self, UnknownCompressed> {
        Self::of_name(text).ok_or_else(|| UnknownCompressed(text.to_owned()))
    }
}
