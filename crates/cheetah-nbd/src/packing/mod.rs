//! Packed reads: content compressed and digested where it is read, on its way to one of our own clients.
//!
//! A client that wants this asks for the metadata context `x-cheetah:packed/METHOD`. Where it is granted, replies to
//! reads come in the chunks of [`proto::packed`](crate::proto::packed); everything else stays as it is. Other servers
//! ignore the context and other clients never ask for it.

//!
//! On the server's side a [`Packer`] does the work, on threads of its own: it looks for zeros (`cut`), and packs what is
//! left as the client asked. Asked for [`Method::Auto`], it takes a [`sample`] of each piece, knows from the sockets
//! what the link carries ([`link`]) and from experience what the processors can do, and picks what is fastest
//! ([`auto`]).

pub mod auto;
mod cut;
pub mod link;
pub(crate) mod meter;
mod packer;
pub mod sample;

use std::fmt;
use std::str::FromStr;

pub use packer::{Chunk, Packer, PackerConfig};

/// The context that asks for packed reads, without the method.
pub const PACKED_CONTEXT: &str = "x-cheetah:packed/";

/// How content is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Not at all: only holes and digests.
    None,
    /// LZ4: little processor time, shrinks little.
    Lz4,
    /// Zstandard: more of both.
    Zstd,
    /// Whatever is fastest as far as link and processors can be seen to bear, chosen for each piece.
    Auto,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 4] = [Self::None, Self::Lz4, Self::Zstd, Self::Auto];

    /// Its name, as in [`Display`](fmt::Display).
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Auto => "auto",
        }
    }

    /// The context that asks for it.
    pub fn context(self) -> String {
        format!("{PACKED_CONTEXT}{self}")
    }

    /// The method a context asks for, if it is one of [`PACKED_CONTEXT`] that we know.
    pub fn of_context(context: &str) -> Option<Self> {
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

/// Whether a client asks for packed reads.
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
        for method in Method::ALL {
            assert_eq!(Method::of_context(&method.context()), Some(method));
        }
        assert_eq!(Method::of_context("x-cheetah:packed/bzip2"), None);
        assert_eq!(Method::of_context("x-cheetah:lease/auto"), None);
    }
}
