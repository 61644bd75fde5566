//! The boot sector.

use cheetah_device::ByteRange;

use cheetah_device::le::{u16_at, u64_at};

const CLUSTER_BYTES_MAX: u64 = 2 << 20;
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// The relevant fields of an NTFS boot sector, checked against overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Boot {
    /// 512 bytes to 2 MiB.
    pub cluster_bytes: u64,
    /// The length of a record of the MFT: 512 bytes to 64 KiB, a multiple of 512.
    pub record_bytes: u64,
    /// The size of the volume without the copy of the boot sector; at most `i64::MAX`.
    pub volume_bytes: u64,
    /// The offset of the MFT, within the volume.
    pub mft: u64,
    /// The offset of the MFT mirror.
    pub mirror: u64,
}

impl Boot {
    /// Parses a boot sector; `None` if it is not NTFS, or The Sleuth Kit refuses it.
    pub(super) fn parse(sector: &[u8]) -> Option<Self> {
        if sector.get(3..11)? != b"NTFS    " || u16_at(sector, 510) != 0xaa55 {
            return None;
        }
        let sector_bytes = u64::from(u16_at(sector, 11));
        if !(512..=4096).contains(&sector_bytes) || !sector_bytes.is_power_of_two() {
            return None;
        }
        let cluster_bytes = match *sector.get(13)? {
            exponent @ 0x81.. => 1_u64.checked_shl(u32::from(exponent.wrapping_neg()))?.checked_mul(sector_bytes)?,
            sectors => u64::from(sectors) * sector_bytes,
        };
        if !cluster_bytes.is_power_of_two() || cluster_bytes > CLUSTER_BYTES_MAX {
            return None;
        }
        let record_bytes = match sector.get(64)?.cast_signed() {
            exponent @ ..0 => 1_u64.checked_shl(u32::from(exponent.unsigned_abs()))?,
            clusters => u64::from(clusters.unsigned_abs()) * cluster_bytes,
        };
        if record_bytes == 0 || !record_bytes.is_multiple_of(512) || record_bytes > RECORD_BYTES_MAX {
            return None;
        }
        let volume_bytes = u64_at(sector, 40).checked_mul(sector_bytes).filter(|&bytes| bytes <= i64::MAX as u64)?;
        let mft = u64_at(sector, 48).checked_mul(cluster_bytes).filter(|&mft| mft < volume_bytes)?;
        let mirror = u64_at(sector, 56).saturating_mul(cluster_bytes);
        Some(Self { cluster_bytes, record_bytes, volume_bytes, mft, mirror })
    }

    /// The range of `len` clusters from `start`, if within the volume.
    pub(super) fn clusters(&self, start: u64, len: u64) -> Option<ByteRange> {
        let range = ByteRange::new(start.checked_mul(self.cluster_bytes)?, len.checked_mul(self.cluster_bytes)?);
        range.fits(self.volume_bytes).then_some(range)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A common boot sector: 4 KiB clusters, records of 1 KiB.
    pub(in crate::ntfs) fn sector(volume_bytes: u64, mft: u64) -> Vec<u8> {
        let mut sector = vec![0; 512];
        sector[3..11].copy_from_slice(b"NTFS    ");
        sector[11..13].copy_from_slice(&512_u16.to_le_bytes());
        sector[13] = 8;
        sector[40..48].copy_from_slice(&(volume_bytes / 512).to_le_bytes());
        sector[48..56].copy_from_slice(&(mft / 4096).to_le_bytes());
        sector[56..64].copy_from_slice(&2_u64.to_le_bytes());
        sector[64] = 0xf6;
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    }

    #[test]
    fn the_boot_sector_locates_the_mft() {
        let boot = Boot::parse(&sector(1 << 20, 16384)).unwrap();
        let expected =
            Boot { cluster_bytes: 4096, record_bytes: 1024, volume_bytes: 1 << 20, mft: 16384, mirror: 8192 };
        assert_eq!(boot, expected);
        assert_eq!(boot.clusters(255, 1), Some(ByteRange::new(255 * 4096, 4096)));
        assert_eq!(boot.clusters(255, 2), None);
        assert_eq!(boot.clusters(u64::MAX, 1), None);
    }

    #[test]
    fn large_clusters_are_exponents() {
        let mut sector = sector(1 << 30, 0);
        sector[13] = 0xf4;
        assert_eq!(Boot::parse(&sector).unwrap().cluster_bytes, 2 << 20);
        sector[13] = 0x81;
        assert_eq!(Boot::parse(&sector), None);
        sector[13] = 3;
        assert_eq!(Boot::parse(&sector), None);
    }

    #[test]
    fn invalid_boot_sectors_are_refused() {
        for (at, value) in [(3, 0), (12, 0), (13, 0), (64, 0), (64, 0x80), (64, 0x7f), (47, 0xff), (55, 0x40), (511, 0)]
        {
            let mut sector = sector(1 << 20, 16384);
            sector[at] = value;
            assert_eq!(Boot::parse(&sector), None, "{at}");
        }
        assert_eq!(Boot::parse(&[]), None);
    }
}
