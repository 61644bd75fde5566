//! Packed reads: content is compressed and digested at the source, for Cheetah's own clients.
//!
//! A client requests the metadata context `x-cheetah:packed/METHOD`. If it is granted, replies to reads consist of the
//! chunks of [`proto::packed`](crate::proto::packed); the rest of the protocol is unchanged. Other servers ignore the
//! context, and other clients never request it.

//!
//! In the server, a [`Packer`] does the work on threads of its own: it finds zeros (`cut`), and packs the rest by the
//! client's method. For [`Method::Auto`], it takes a [`sample`] of each piece, and chooses the fastest method
//! ([`auto`]) from the link's bandwidth as seen at the sockets ([`link`]) and the speed of earlier pieces.

pub mod auto;
mod cut;
pub mod link;
pub(crate) mod meter;
mod packer;
pub mod sample;

use std::fmt;
use std::str::FromStr;

pub use packer::{Chunk, Packer, PackerConfig};

/// The prefix of the context for packed reads; the method follows.
pub const PACKED_CONTEXT: &str = "x-cheetah:packed/";

/// The context for replies that hold digests instead of content.
pub const DIGESTS_CONTEXT: &str = "x-cheetah:digests";

/// How content is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// No compression: only holes and digests.
    None,
    /// LZ4: little processor time, shrinks little.
    Lz4,
    /// Zstandard: more of both.
    Zstd,
    /// The fastest for the link and the processors, chosen for each piece.
    Auto,
    /// Left out: a BLAKE3 digest of each MiB is sent instead ([`Client::digests`](crate::client::Client::digests)).
    Omit,
}

impl Method {
    /// Every method that brings the content.
    pub const ALL: [Self; 4] = [Self::None, Self::Lz4, Self::Zstd, Self::Auto];

    /// Its name, as in [`Display`](fmt::Display).
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Auto => "auto",
            Self::Omit => "omit",
        }
    }

    /// The context that requests it.
    pub fn context(self) -> String {
        match self {
            Self::Omit => DIGESTS_CONTEXT.to_owned(),
            method => format!("{PACKED_CONTEXT}{method}"),
        }
    }

    /// The method that a context requests; `None` for other contexts.
    pub fn of_context(context: &str) -> Option<Self> {
        if context == DIGESTS_CONTEXT {
            return Some(Self::Omit);
        }
        context.strip_prefix(PACKED_CONTEXT)?.parse().ok()
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no [`Method`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no way to pack; choose none, lz4, zstd or auto")]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMethod> {
        Self::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| UnknownMethod(text.to_owned()))
    }
}

/// Whether a client requests packed reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Packing {
    /// No: plain NBD.
    #[default]
    Off,
    /// If the server grants it; plain NBD if not.
    Wanted(Method),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_name_methods() {
        for method in Method::ALL.into_iter().chain([Method::Omit]) {
            assert_eq!(Method::of_context(&method.context()), Some(method));
        }
        assert_eq!(Method::of_context("x-cheetah:packed/omit"), None);
        assert_eq!(Method::of_context("x-cheetah:packed/bzip2"), None);
        assert_eq!(Method::of_context("x-cheetah:lease/auto"), None);
    }
}
