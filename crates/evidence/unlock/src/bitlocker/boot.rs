//! The boot sector of a volume.

use cheetah_device::le::{u16_at, u64_at};

use crate::refusal::{Refusal, Result};

/// How the boot sector of Windows Vista begins. It is that of NTFS with two changes: the signature is in the place of the name of the
/// file system, and the cluster of the metadata in that of the copy of its file table.
const VISTA: &[u8] = b"\xeb\x52\x90-FVE-FS-";
const NTFS: &[u8] = b"NTFS    ";
const NAME_AT: usize = 3;
const COPY_AT: usize = 56;
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
    /// The sector itself, if it is of Windows Vista.
    vista: Option<Vec<u8>>,
    /// Bytes of a cluster, if it is of Windows Vista.
    pub cluster_bytes: u64,
}

impl Boot {
    pub fn parse(sector: &[u8]) -> Result<Self> {
        let at = |place: usize| sector.get(place..place + IDENTIFIER.len()).unwrap_or_default();
        let place = match () {
            () if [IDENTIFIER, IDENTIFIER_ON_WRITE].contains(&at(IDENTIFIER_FIXED)) => IDENTIFIER_FIXED,
            () if at(IDENTIFIER_REMOVABLE) == IDENTIFIER => IDENTIFIER_REMOVABLE,
            () if sector.starts_with(VISTA) => return Ok(Self::of_vista(sector)),
            () => return Err(Refusal::Damaged("its boot sector has no identifier")),
        };
        let metadata_at = (2..=4).map(|nth| u64_at(sector, place + 8 * nth)).filter(|at| *at > 0).collect();
        let sector_bytes = u64::from(u16_at(sector, 11));
        let is_on_write = at(IDENTIFIER_FIXED) == IDENTIFIER_ON_WRITE;
        Ok(Self { sector_bytes, metadata_at, is_on_write, vista: None, cluster_bytes: 0 })
    }

    fn of_vista(sector: &[u8]) -> Self {
        let sector_bytes = u64::from(u16_at(sector, 11));
        let cluster_bytes = sector_bytes * u64::from(sector.get(13).copied().unwrap_or(0));
        let metadata_at = u64_at(sector, COPY_AT).checked_mul(cluster_bytes).filter(|at| *at > 0);
        Self {
            sector_bytes,
            metadata_at: metadata_at.into_iter().collect(),
            is_on_write: false,
            vista: Some(sector.to_vec()),
            cluster_bytes,
        }
    }

    /// Whether it is of Windows Vista.
    pub fn is_of_vista(&self) -> bool {
        self.vista.is_some()
    }

    /// The sector as it was before the encryption, if it is of Windows Vista: the copy of the file table is at this cluster.
    pub fn before(&self, copy_at: u64) -> Option<Vec<u8>> {
        let mut sector = self.vista.clone()?;
        sector.get_mut(NAME_AT..)?.get_mut(..NTFS.len())?.copy_from_slice(NTFS);
        sector.get_mut(COPY_AT..)?.get_mut(..8)?.copy_from_slice(&copy_at.to_le_bytes());
        Some(sector)
    }
}
