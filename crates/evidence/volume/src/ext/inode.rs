//! Inodes.

use cheetah_device::le::{u16_at, u32_at};

/// The sixty bytes of an inode that map its content.
const MAP: std::ops::Range<usize> = 0x28..0x64;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;

/// The type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Regular,
    Link,
    Other,
}

/// The form of an inode's content map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A tree of extents.
    Extents,
    /// Block numbers, and blocks of block numbers.
    Pointers,
    /// Inline content.
    Inline,
}

/// A parsed inode. Its numbers are unchecked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inode<'a> {
    pub kind: Kind,
    /// The link count; 0 if deleted.
    pub links: u16,
    /// The size of the content, in bytes.
    pub size: u64,
    pub form: Form,
    /// The sixty bytes that map the content, or are its start.
    pub map: &'a [u8],
}

impl<'a> Inode<'a> {
    /// Parses an inode; `None` if it was never used, or is truncated.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let map = bytes.get(MAP)?;
        let kind = match u16_at(bytes, 0) >> 12 {
            0 => return None,
            0x4 => Kind::Directory,
            0x8 => Kind::Regular,
            0xa => Kind::Link,
            _ => Kind::Other,
        };
        let high = if kind == Kind::Regular { u64::from(u32_at(bytes, 0x6c)) << 32 } else { 0 };
        let form = match u32_at(bytes, 0x20) {
            flags if flags & FLAG_INLINE != 0 => Form::Inline,
            flags if flags & FLAG_EXTENTS != 0 => Form::Extents,
            _ => Form::Pointers,
        };
        Some(Self { kind, links: u16_at(bytes, 0x1a), size: u64::from(u32_at(bytes, 0x4)) | high, form, map })
    }

    /// Whether it is a symbolic link with its target in separate blocks, which The Sleuth Kit reads for a listing.
    pub fn is_long_link(&self) -> bool {
        self.kind == Kind::Link && self.form == Form::Pointers && (MAP.len() as u64..4096).contains(&self.size)
    }
}
