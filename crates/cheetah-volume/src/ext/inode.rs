//! Inodes.

use crate::le::{le16, le32};

/// The sixty bytes that say where the content is.
const MAP: std::ops::Range<usize> = 0x28..0x64;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;

/// What an inode stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Regular,
    Link,
    Other,
}

/// How an inode says where its content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A tree of extents.
    Extents,
    /// Block numbers, and blocks of block numbers.
    Pointers,
    /// It is in the inode.
    Inline,
}

/// An inode; its numbers may be anything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inode<'a> {
    pub kind: Kind,
    /// How many names it has; none if it is deleted.
    pub links: u16,
    /// Bytes of content.
    pub size: u64,
    pub form: Form,
    /// Sixty bytes that say where the content is, or are its start.
    pub map: &'a [u8],
}

impl<'a> Inode<'a> {
    /// Reads an inode; `None` if it has never been used, or is cut short.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let map = bytes.get(MAP)?;
        let kind = match le16(bytes, 0) >> 12 {
            0 => return None,
            0x4 => Kind::Directory,
            0x8 => Kind::Regular,
            0xa => Kind::Link,
            _ => Kind::Other,
        };
        let high = if kind == Kind::Regular { u64::from(le32(bytes, 0x6c)) << 32 } else { 0 };
        let form = match le32(bytes, 0x20) {
            flags if flags & FLAG_INLINE != 0 => Form::Inline,
            flags if flags & FLAG_EXTENTS != 0 => Form::Extents,
            _ => Form::Pointers,
        };
        Some(Self { kind, links: le16(bytes, 0x1a), size: u64::from(le32(bytes, 0x4)) | high, form, map })
    }

    /// Whether it is a symbolic link whose target is in blocks of its own, as The Sleuth Kit reads it for a listing.
    pub fn is_long_link(&self) -> bool {
        self.kind == Kind::Link && self.form == Form::Pointers && (MAP.len() as u64..4096).contains(&self.size)
    }
}
