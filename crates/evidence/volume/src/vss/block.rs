//! The header of a volume with shadow copies, and the headers of the blocks that hold all else.

use cheetah_device::le::{u32_at, u64_at};

use super::refused::{Damage, Defect, Part};

/// The identifier at the start of the header and of each block: 3808876b-c176-4e48-b7ae-04046e6cc752.
pub(super) const IDENTIFIER: [u8; 16] =
    [0x6b, 0x87, 0x08, 0x38, 0x76, 0xc1, 0x48, 0x4e, 0xb7, 0xae, 0x04, 0x04, 0x6e, 0x6c, 0xc7, 0x52];
/// Where the header of a volume is.
pub(super) const HEADER_AT: usize = 0x1e00;
/// The length of the header of a block, in bytes.
pub(super) const BLOCK_HEADER_BYTES: usize = 128;

const NTFS: &[u8] = b"NTFS    ";
const HEADER_VERSIONS: [u32; 2] = [1, 2];
const HEADER_TYPE: u32 = 1;
const BLOCK_VERSION: u32 = 1;

impl Part {
    /// The type in the header of a block of this kind; `None` for what is no block.
    fn record_type(self) -> Option<u32> {
        match self {
            Self::Header | Self::Descriptor => None,
            Self::Catalog => Some(2),
            Self::List => Some(3),
            Self::Store => Some(4),
            Self::Bitmap => Some(6),
        }
    }
}

/// Returns where the catalog begins, by the start of a volume; `None` if it has no shadow copies. A header in a volume that is no NTFS
/// volume is damage: of either.
pub(super) fn parse_header(start: &[u8]) -> Option<Result<u64, Defect>> {
    let header = start.get(HEADER_AT..HEADER_AT + BLOCK_HEADER_BYTES)?;
    if !header.starts_with(&IDENTIFIER) {
        return None;
    }
    let damaged = |why| Some(Err(Defect::Damaged { part: Part::Header, at: HEADER_AT as u64, why }));
    if start.get(3..11) != Some(NTFS) {
        return damaged(Damage::NotNtfs);
    }
    if !HEADER_VERSIONS.contains(&u32_at(header, 16)) {
        return damaged(Damage::Version);
    }
    if u32_at(header, 20) != HEADER_TYPE || u64_at(header, 24) != HEADER_AT as u64 {
        return damaged(Damage::Kind);
    }
    match u64_at(header, 48) {
        0 => None,
        at => Some(Ok(at)),
    }
}

/// Checks the header of a block that was read at `at`; returns where the next one of its list is, 0 after the last.
pub(super) fn parse_block(block: &[u8], part: Part, at: u64) -> Result<u64, Defect> {
    let damaged = |why| Err(Defect::Damaged { part, at, why });
    if !block.starts_with(&IDENTIFIER) {
        return damaged(Damage::Identifier);
    }
    if u32_at(block, 16) != BLOCK_VERSION {
        return damaged(Damage::Version);
    }
    if Some(u32_at(block, 20)) != part.record_type() {
        return damaged(Damage::Kind);
    }
    if u64_at(block, 32) != at {
        return damaged(Damage::Place);
    }
    Ok(u64_at(block, 40))
}
