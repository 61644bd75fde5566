//! Directory entries.

use cheetah_device::le::{u16_at, u32_at, u64_at};

/// The size of a directory entry; exFAT has several in a row per file.
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

/// A file or a directory. Its numbers are unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FatEntry {
    pub is_directory: bool,
    pub is_deleted: bool,
    /// Its first cluster.
    pub cluster: u32,
    /// Its size in bytes; FAT does not record it for directories.
    pub size: Option<u64>,
    /// Whether its clusters are contiguous and not recorded in the table.
    pub is_contiguous: bool,
}

/// Parses an entry of FAT12, FAT16 or FAT32; `None` if it is empty or of another type.
pub(super) fn fat(bytes: &[u8], is_wide: bool) -> Option<FatEntry> {
    let (name, attributes) = (*bytes.first()?, *bytes.get(11)?);
    let is_other = attributes & 0x3f == LONG_NAME || attributes & LABEL != 0;
    if name == 0 || name == b'.' || is_other {
        return None;
    }
    let high = if is_wide { u32::from(u16_at(bytes, 20)) << 16 } else { 0 };
    let is_directory = attributes & DIRECTORY != 0;
    Some(FatEntry {
        is_directory,
        is_deleted: name == DELETED,
        cluster: u32::from(u16_at(bytes, 26)) | high,
        size: (!is_directory).then(|| u32_at(bytes, 28).into()),
        is_contiguous: false,
    })
}

/// The types of exFAT entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExFat {
    /// The first entry of a file; the next one belongs to it.
    File { is_directory: bool, is_deleted: bool },
    /// The second entry of a file, with its position.
    Stream { cluster: u32, size: u64, is_contiguous: bool },
    /// The position of the cluster bitmap.
    Bitmap { cluster: u32, size: u64 },
}

/// Parses an entry of exFAT; `None` if it is of another type.
pub(super) fn ex_fat(bytes: &[u8]) -> Option<ExFat> {
    let kind = *bytes.first()?;
    let (cluster, size) = (u32_at(bytes, 20), u64_at(bytes, 24));
    match kind {
        EX_BITMAP => Some(ExFat::Bitmap { cluster, size }),
        _ if kind & !EX_IN_USE == EX_FILE => Some(ExFat::File {
            is_directory: u16_at(bytes, 4) & u16::from(DIRECTORY) != 0,
            is_deleted: kind & EX_IN_USE == 0,
        }),
        _ if kind & !EX_IN_USE == EX_STREAM => {
            let is_contiguous = bytes.get(1).is_some_and(|flags| flags & EX_CONTIGUOUS != 0);
            Some(ExFat::Stream { cluster, size, is_contiguous })
        }
        _ => None,
    }
}
