//! Records of the MFT, and the attributes in them.
//!
//! After Carrier, *File System Forensic Analysis*, chapter 13, and the Linux-NTFS project's documentation.

use super::runs::Runs;
use cheetah_device::le::{u16_at, u32_at, u64_at};

/// The stride of the update sequence, independent of the sector size.
const STRIDE: usize = 512;

/// The relevant attribute types.
pub(super) mod kind {
    pub const ATTRIBUTE_LIST: u32 = 0x20;
    pub const FILE_NAME: u32 = 0x30;
    pub const DATA: u32 = 0x80;
    pub const INDEX_ALLOCATION: u32 = 0xa0;
}

/// A record, in use or deleted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    bytes: &'a [u8],
    /// The number of the base record; 0 for base records and for extensions of the MFT's record.
    pub base: u64,
    /// Whether it is an extension record.
    pub is_extension: bool,
    /// Whether it belongs, or belonged, to a directory.
    pub is_directory: bool,
    attributes: usize,
}

impl<'a> Record<'a> {
    /// Parses a record after applying its update sequence; `None` if it is invalid or was written incompletely.
    pub(super) fn parse(bytes: &'a mut [u8]) -> Option<Self> {
        if bytes.first_chunk() != Some(b"FILE") || !put_right(bytes) {
            return None;
        }
        let bytes = &*bytes;
        // The sequence number distinguishes a reference to record 0, the MFT's, from no reference.
        let reference = u64_at(bytes, 32);
        Some(Self {
            bytes,
            base: reference & 0xffff_ffff_ffff,
            is_extension: reference != 0,
            is_directory: u16_at(bytes, 22) & 2 != 0,
            attributes: usize::from(u16_at(bytes, 20)),
        })
    }

    /// Its attributes, up to the first invalid one.
    pub(super) fn attributes(self) -> impl Iterator<Item = Attribute<'a>> {
        let mut rest = self.bytes.get(self.attributes..).unwrap_or_default();
        std::iter::from_fn(move || {
            let len = u32_at(rest, 4) as usize;
            if u32_at(rest, 0) == u32::MAX || len < 24 {
                return None;
            }
            let (bytes, behind) = rest.split_at_checked(len)?;
            rest = behind;
            Some(Attribute { bytes })
        })
    }
}

/// Restores the last two bytes of each stride; returns whether all matched the update sequence number.
fn put_right(record: &mut [u8]) -> bool {
    let (at, count) = (usize::from(u16_at(record, 4)), usize::from(u16_at(record, 6)));
    if count == 0 || (count - 1) * STRIDE > record.len() || at + 2 * count > record.len() {
        return false;
    }
    let number = u16_at(record, at);
    for stride in 1..count {
        let kept = u16_at(record, at + 2 * stride);
        if u16_at(record, stride * STRIDE - 2) != number {
            return false;
        }
        if let Some(end) = record.get_mut(stride * STRIDE - 2..stride * STRIDE) {
            end.copy_from_slice(&kept.to_le_bytes());
        }
    }
    true
}

/// An attribute of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute<'a> {
    bytes: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Its [`kind`].
    pub(super) fn kind(self) -> u32 {
        u32_at(self.bytes, 0)
    }

    /// Its name, in UTF-16; usually empty.
    pub(super) fn name(self) -> &'a [u8] {
        let start = usize::from(u16_at(self.bytes, 10));
        let len = 2 * usize::from(self.bytes.get(9).copied().unwrap_or(0));
        self.bytes.get(start..start + len).unwrap_or_default()
    }

    /// Its content, if resident.
    pub(super) fn resident(self) -> Option<&'a [u8]> {
        let start = usize::from(u16_at(self.bytes, 20));
        let len = u32_at(self.bytes, 16) as usize;
        (*self.bytes.get(8)? == 0).then(|| self.bytes.get(start..start.checked_add(len)?)).flatten()
    }

    /// The position of its content, if non-resident.
    pub(super) fn non_resident(self) -> Option<NonResident<'a>> {
        let list = self.bytes.get(usize::from(u16_at(self.bytes, 32))..)?;
        let compressed = u16_at(self.bytes, 12) & 0xff != 0;
        let (size, initialised) = (u64_at(self.bytes, 48), u64_at(self.bytes, 56));
        let first = u64_at(self.bytes, 16);
        let content = NonResident { first, size: size.min(initialised), compressed, list };
        (*self.bytes.get(8)? != 0).then_some(content)
    }
}

/// The position of a non-resident attribute's content, or of a part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NonResident<'a> {
    /// The number of its first cluster within the attribute: not 0 in extension records.
    pub first: u64,
    /// The stored size of the content; meaningful only if `first` is 0.
    pub size: u64,
    /// Whether the stored bytes are compressed or encrypted.
    pub compressed: bool,
    list: &'a [u8],
}

impl<'a> NonResident<'a> {
    /// Its runs, in order.
    pub(super) fn runs(self) -> Runs<'a> {
        Runs::new(self.list)
    }
}

/// A file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileName<'a> {
    /// The record of its directory.
    pub parent: u64,
    /// In UTF-16.
    pub name: &'a [u8],
    /// Whether it is a short (8.3) name beside a long one.
    pub is_short: bool,
}

impl<'a> FileName<'a> {
    /// Parses the content of a `$FILE_NAME`.
    pub(super) fn parse(content: &'a [u8]) -> Option<Self> {
        let len = 2 * usize::from(*content.get(64)?);
        let parent = u64_at(content, 0) & 0xffff_ffff_ffff;
        Some(Self { parent, name: content.get(66..66 + len)?, is_short: *content.get(65)? == 2 })
    }
}
