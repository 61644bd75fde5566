//! Directory entries.

use crate::le::{le16, le32, le64};

/// Every entry of a directory is so long; exFAT has several in a row for each file.
pub(super) const ENTRY_BYTES: usize = 32;

const DIRECTORY: u8 = 0x10;
const LABEL: u8 = 0x08;
const LONG_NAME: u8 = 0x0f;
const DELETED: u8 = 0xe5;

const EX_IN_USE: u8 = 0x80;
const EX_FILE: u8 = 0x05;
const EX_STREAM: u8 = 0x40;
const EX_BITMAP: u8 = 0x81;
const EX_CONTIGUOUS: u8 = 0x02;

/// A file or a directory. Its numbers may be anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub is_directory: bool,
    pub is_deleted: bool,
    /// Its first cluster.
    pub cluster: u32,
    /// In bytes; directories of FAT do not say.
    pub size: Option<u64>,
    /// Its clusters follow each other, and the table has nothing to say of them.
    pub is_contiguous: bool,
}

/// Reads an entry of FAT12, FAT16 or FAT32; `None` if it is empty, or something else.
pub(super) fn fat(bytes: &[u8], is_wide: bool) -> Option<Found> {
    let (name, attributes) = (*bytes.first()?, *bytes.get(11)?);
    let is_other = attributes & 0x3f == LONG_NAME || attributes & LABEL != 0;
    if name == 0 || name == b'.' || is_other {
        return None;
    }
    let high = if is_wide { u32::from(le16(bytes, 20)) << 16 } else { 0 };
    let is_directory = attributes & DIRECTORY != 0;
    Some(Found {
        is_directory,
        is_deleted: name == DELETED,
        cluster: u32::from(le16(bytes, 26)) | high,
        size: (!is_directory).then(|| le32(bytes, 28).into()),
        is_contiguous: false,
    })
}

/// What an entry of exFAT is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExFat {
    /// The first of a file's, which the next one belongs to.
    File { is_directory: bool, is_deleted: bool },
    /// The second of a file's, which says where it is.
    Stream { cluster: u32, size: u64, is_contiguous: bool },
    /// Where the bitmap of the clusters is.
    Bitmap { cluster: u32, size: u64 },
}

/// Reads an entry of exFAT; `None` if it is none of those that matter.
pub(super) fn ex_fat(bytes: &[u8]) -> Option<ExFat> {
    let kind = *bytes.first()?;
    let (cluster, size) = (le32(bytes, 20), le64(bytes, 24));
    match kind {
        EX_BITMAP => Some(ExFat::Bitmap { cluster, size }),
        _ if kind & !EX_IN_USE == EX_FILE => Some(ExFat::File {
            is_directory: le16(bytes, 4) & u16::from(DIRECTORY) != 0,
            is_deleted: kind & EX_IN_USE == 0,
        }),
        _ if kind & !EX_IN_USE == EX_STREAM => {
            let is_contiguous = bytes.get(1).is_some_and(|flags| flags & EX_CONTIGUOUS != 0);
            Some(ExFat::Stream { cluster, size, is_contiguous })
        }
        _ => None,
    }
}
