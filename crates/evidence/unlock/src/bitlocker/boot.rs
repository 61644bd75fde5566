//! The boot sector of a volume.

use cheetah_device::le::{u16_at, u64_at};

use crate::refusal::{Refusal, Result};

const SIGNATURE: &[u8] = b"-FVE-FS-";
/// Where the identifier lies on a fixed disk, and on a removable one ("To Go"). The places of the metadata follow it.
const IDENTIFIER_FIXED: usize = 160;
const IDENTIFIER_REMOVABLE: usize = 424;
const IDENTIFIER: &[u8] = b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01";
/// The identifier of a volume that is encrypted where it is written, until its conversion ends.
const IDENTIFIER_ON_WRITE: &[u8] = b"\x3b\x4d\xa8\x92\x80\xdd\x0e\x4d\x9e\x4e\xb1\xe3\x28\x4e\xae\xd8";

/// What a boot sector says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    pub sector_bytes: u64,
    /// Where the copies of the metadata begin.
    pub metadata_at: Vec<u64>,
    /// Whether parts of the volume may not be encrypted, without an order.
    pub is_on_write: bool,
}

impl Boot {
    pub fn parse(sector: &[u8]) -> Result<Self> {
        let at = |place: usize| sector.get(place..place + IDENTIFIER.len()).unwrap_or_default();
        let place = match () {
            () if [IDENTIFIER, IDENTIFIER_ON_WRITE].contains(&at(IDENTIFIER_FIXED)) => IDENTIFIER_FIXED,
            () if at(IDENTIFIER_REMOVABLE) == IDENTIFIER => IDENTIFIER_REMOVABLE,
            () if sector.get(3..11) == Some(SIGNATURE) => {
                return Err(Refusal::Unsupported("BitLocker of Windows Vista".to_owned()));
            }
            () => return Err(Refusal::Damaged("its boot sector has no identifier")),
        };
        let metadata_at = (2..=4).map(|nth| u64_at(sector, place + 8 * nth)).filter(|at| *at > 0).collect();
        let sector_bytes = u64::from(u16_at(sector, 11));
        let is_on_write = at(IDENTIFIER_FIXED) == IDENTIFIER_ON_WRITE;
        Ok(Self { sector_bytes, metadata_at, is_on_write })
    }
}
