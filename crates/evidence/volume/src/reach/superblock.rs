//! Sizes in superblocks. Only what the size depends on is interpreted.

use cheetah_device::le::{u16_at, u32_at, u64_at};

use super::Claim;

/// A file system, or another user of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    name: &'static str,
    /// The size that it claims, in bytes.
    len: u64,
    /// Whether the first sector has the signature of a partition table, too.
    pub(super) is_boot_sector: bool,
}

impl Found {
    pub(super) fn claim(&self, place: &str, start: u64) -> Claim {
        Claim::new(format!("the {}{place}", self.name), start.saturating_add(self.len))
    }
}

type Parse = fn(&[u8]) -> Option<(&'static str, u64)>;

/// Kinds whose superblock is in the boot sector.
const BOOT: [Parse; 4] = [ntfs, exfat, refs, fat];
const OTHERS: [Parse; 16] =
    [ext, xfs, btrfs, hfs_plus, hfs, apfs, f2fs, reiserfs, jfs, iso9660, squashfs, erofs, nilfs, lvm, md, swap];

/// Returns what is in the volume that starts with these bytes.
pub(super) fn find(start: &[u8]) -> Option<Found> {
    let boot = BOOT.iter().find_map(|parse| parse(start)).map(|found| (found, true));
    let found = boot.or_else(|| OTHERS.iter().find_map(|parse| parse(start)).map(|found| (found, false)));
    found.filter(|((_, len), _)| *len > 0).map(|((name, len), is_boot_sector)| Found { name, len, is_boot_sector })
}

fn has(start: &[u8], at: usize, magic: &[u8]) -> bool {
    start.get(at..).is_some_and(|rest| rest.starts_with(magic))
}

fn be16(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_be_bytes(*bytes).into())
}

fn be32(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes).into())
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// A size of sectors or blocks; absurd ones claim nothing.
fn sectors(bytes: u64) -> Option<u64> {
    ((256..=1 << 20).contains(&bytes) && bytes.is_power_of_two()).then_some(bytes)
}

fn is_boot_sector(start: &[u8]) -> bool {
    has(start, 510, &[0x55, 0xaa])
}

fn ntfs(start: &[u8]) -> Option<(&'static str, u64)> {
    let name = match () {
        () if has(start, 3, b"NTFS    ") => "NTFS file system",
        () if has(start, 3, b"-FVE-FS-") => "BitLocker volume",
        () => return None,
    };
    // Not counting the copy of the boot sector behind the last cluster, which images of volumes may lack.
    let len = u64_at(start, 40).checked_mul(sectors(u16_at(start, 11).into())?)?;
    is_boot_sector(start).then_some((name, len))
}

fn exfat(start: &[u8]) -> Option<(&'static str, u64)> {
    let shift = u32::from(*start.get(108)?);
    let len = u64_at(start, 72).checked_mul(1u64.checked_shl(shift).filter(|_| (9..=12).contains(&shift))?)?;
    (has(start, 3, b"EXFAT   ") && is_boot_sector(start)).then_some(("exFAT file system", len))
}

fn refs(start: &[u8]) -> Option<(&'static str, u64)> {
    let len = u64_at(start, 24).checked_mul(sectors(u32_at(start, 32).into())?)?;
    has(start, 3, b"ReFS\0\0\0\0").then_some(("ReFS file system", len))
}

fn fat(start: &[u8]) -> Option<(&'static str, u64)> {
    let (cluster, reserved, tables, media) = (*start.get(13)?, u16_at(start, 14), *start.get(16)?, *start.get(21)?);
    let sector = sectors(u16_at(start, 11).into())?;
    let is_sound = is_boot_sector(start)
        && matches!(start.first(), Some(0xeb | 0xe9))
        && cluster.is_power_of_two()
        && reserved > 0
        && matches!(tables, 1 | 2)
        && media >= 0xf0;
    let count = match u16_at(start, 19) {
        0 => u64::from(u32_at(start, 32)),
        count => count.into(),
    };
    is_sound.then_some(("FAT file system", count * sector))
}

fn ext(start: &[u8]) -> Option<(&'static str, u64)> {
    let at = 1024;
    let (shift, wide) = (u32_at(start, at + 0x18), u32_at(start, at + 0x60) & 0x80 != 0);
    let high = if wide { u64::from(u32_at(start, at + 0x150)) << 32 } else { 0 };
    let blocks = u64::from(u32_at(start, at + 4)) | high;
    let is_sound = u16_at(start, at + 0x38) == 0xef53 && shift <= 6;
    is_sound.then(|| blocks.checked_mul(1024 << shift)).flatten().map(|len| ("ext file system", len))
}

fn xfs(start: &[u8]) -> Option<(&'static str, u64)> {
    let len = be64(start, 8).checked_mul(sectors(be32(start, 4))?)?;
    has(start, 0, b"XFSB").then_some(("XFS file system", len))
}

fn btrfs(start: &[u8]) -> Option<(&'static str, u64)> {
    let at = 64 << 10;
    // The size of this device; the file system may have several.
    has(start, at + 0x40, b"_BHRfS_M").then(|| ("Btrfs file system", u64_at(start, at + 0xc9 + 8)))
}

fn hfs_plus(start: &[u8]) -> Option<(&'static str, u64)> {
    let is_one = has(start, 1024, b"H+\0\x04") || has(start, 1024, b"HX\0\x05");
    is_one.then(|| ("HFS+ file system", be32(start, 1024 + 40) * be32(start, 1024 + 44)))
}

fn hfs(start: &[u8]) -> Option<(&'static str, u64)> {
    let (blocks, block, first) = (be16(start, 1024 + 18), be32(start, 1024 + 20), be16(start, 1024 + 28));
    let is_one = has(start, 1024, b"BD") && block > 0 && block.is_multiple_of(512);
    is_one.then(|| ("HFS file system", first * 512 + blocks * block))
}

fn apfs(start: &[u8]) -> Option<(&'static str, u64)> {
    let len = u64_at(start, 40).checked_mul(sectors(u32_at(start, 36).into())?)?;
    has(start, 32, b"NXSB").then_some(("APFS container", len))
}

fn f2fs(start: &[u8]) -> Option<(&'static str, u64)> {
    let shift = u32_at(start, 1024 + 16);
    let len = u64_at(start, 1024 + 36).checked_mul(1u64.checked_shl(shift).filter(|_| (9..=16).contains(&shift))?)?;
    has(start, 1024, &0xf2f5_2010_u32.to_le_bytes()).then_some(("F2FS file system", len))
}

fn reiserfs(start: &[u8]) -> Option<(&'static str, u64)> {
    let at = 64 << 10;
    let len = u64::from(u32_at(start, at)) * sectors(u16_at(start, at + 44).into())?;
    has(start, at + 52, b"ReIsEr").then_some(("ReiserFS file system", len))
}

fn jfs(start: &[u8]) -> Option<(&'static str, u64)> {
    let at = 32 << 10;
    let len = u64_at(start, at + 8).checked_mul(sectors(u32_at(start, at + 24).into())?)?;
    has(start, at, b"JFS1").then_some(("JFS file system", len))
}

fn iso9660(start: &[u8]) -> Option<(&'static str, u64)> {
    let at = 32 << 10;
    let len = u64::from(u32_at(start, at + 80)) * u64::from(u16_at(start, at + 128));
    has(start, at, b"\x01CD001").then_some(("ISO 9660 file system", len))
}

fn squashfs(start: &[u8]) -> Option<(&'static str, u64)> {
    has(start, 0, b"hsqs").then(|| ("squashfs file system", u64_at(start, 40)))
}

fn erofs(start: &[u8]) -> Option<(&'static str, u64)> {
    let shift = u32::from(*start.get(1024 + 12)?);
    let block = 1u64.checked_shl(shift).filter(|_| (9..=16).contains(&shift))?;
    let is_one = has(start, 1024, &0xe0f5_e1e2_u32.to_le_bytes());
    is_one.then(|| ("EROFS file system", u64::from(u32_at(start, 1024 + 36)) * block))
}

fn nilfs(start: &[u8]) -> Option<(&'static str, u64)> {
    (u16_at(start, 1024 + 6) == 0x3434).then(|| ("NILFS2 file system", u64_at(start, 1024 + 32)))
}

fn lvm(start: &[u8]) -> Option<(&'static str, u64)> {
    let label = (0..4).map(|sector| sector * 512).find(|at| has(start, *at, b"LABELONE"))?;
    let header = label.checked_add(u32_at(start, label + 20) as usize)?;
    has(start, label + 24, b"LVM2 001").then(|| ("LVM physical volume", u64_at(start, header + 32)))
}

fn md(start: &[u8]) -> Option<(&'static str, u64)> {
    let at = [0, 4096].into_iter().find(|at| has(start, *at, &0xa92b_4efc_u32.to_le_bytes()))?;
    let sectors = u64_at(start, at + 128).checked_add(u64_at(start, at + 136))?;
    sectors.checked_mul(512).map(|len| ("member of a Linux RAID", len))
}

fn swap(start: &[u8]) -> Option<(&'static str, u64)> {
    let len = (u64::from(u32_at(start, 1028)) + 1) * 4096;
    has(start, 4096 - 10, b"SWAPSPACE2").then_some(("swap space", len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut start = vec![0; 72 << 10];
        for (at, bytes) in fields {
            start[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        start
    }

    #[test]
    fn the_size_of_each_kind_is_found() {
        let k64 = 64 << 10;
        let boot: (usize, &[u8]) = (510, &[0x55, 0xaa]);
        for (fields, name, len) in [
            (&[boot, (3, b"NTFS    "), (11, &[0, 2]), (40, &[8, 1])][..], "NTFS", 264 * 512),
            (&[boot, (3, b"EXFAT   "), (72, &[8]), (108, &[12])], "exFAT", 8 << 12),
            (&[boot, (0, &[0xeb]), (11, &[0, 2, 4, 1, 0, 2, 0, 0, 16, 0, 0xf8])], "FAT", 16 * 512),
            (&[(3, b"ReFS\0\0\0\0"), (24, &[9]), (32, &[0, 2])], "ReFS", 9 * 512),
            (&[(1024 + 4, &[7]), (1024 + 0x18, &[2]), (1024 + 0x38, &[0x53, 0xef])], "ext", 7 * 4096),
            (&[(0, b"XFSB\0\0\x10\0\0\0\0\0\0\0\0\x05")], "XFS", 5 * 4096),
            (&[(k64 + 0x40, b"_BHRfS_M"), (k64 + 0xd1, &[0, 0, 1])], "Btrfs", k64 as u64),
            (&[(1024, b"H+\0\x04"), (1024 + 40, &[0, 0, 0x10, 0, 0, 0, 0, 3])], "HFS+", 3 * 4096),
            (&[(1024, b"BD"), (1024 + 18, &[0, 9, 0, 0, 2, 0]), (1024 + 28, &[0, 4])], "HFS", 13 * 512),
            (&[(32, b"NXSB\0\x10\0\0\x06")], "APFS", 6 * 4096),
            (&[(1024, &[0x10, 0x20, 0xf5, 0xf2]), (1040, &[12]), (1060, &[5])], "F2FS", 5 * 4096),
            (&[(k64, &[3]), (k64 + 44, &[0, 0x10]), (k64 + 52, b"ReIsEr2Fs")], "ReiserFS", 3 * 4096),
            (&[(k64 / 2, b"JFS1"), (k64 / 2 + 8, &[9]), (k64 / 2 + 24, &[0, 2])], "JFS", 9 * 512),
            (&[(k64 / 2, b"\x01CD001"), (k64 / 2 + 80, &[20]), (k64 / 2 + 128, &[0, 8])], "ISO 9660", 20 * 2048),
            (&[(0, b"hsqs"), (40, &[99])], "squashfs", 99),
            (&[(512, b"LABELONE"), (532, &[32]), (536, b"LVM2 001"), (576, &[0, 1])], "LVM", 256),
            (&[(4096, &[0xfc, 0x4e, 0x2b, 0xa9]), (4096 + 128, &[8]), (4096 + 136, &[16])], "RAID", 24 * 512),
            (&[(1028, &[9]), (4086, b"SWAPSPACE2")], "swap", 10 * 4096),
        ] {
            let found = find(&start(fields)).unwrap_or_else(|| panic!("no {name}"));
            assert!(found.name.contains(name), "{found:?}");
            assert_eq!(found.len, len, "{name}");
        }
        for bytes in [&[][..], &[0; 512], &[0xff; 100_000], b"XFSB"] {
            assert_eq!(find(bytes), None);
        }
    }
}
