//! Formats whose signature is too short to decide alone, or whose place has to be computed.

use cheetah_device::le::{u16_at, u32_at, u64_at};

pub(super) const ZFS: &str = "member of a ZFS pool";
pub(super) const DDF: [u8; 4] = [0xde, 0x11, 0xde, 0x11];
/// How the names of members of arrays of Linux begin.
pub(super) const LINUX_RAID: &str = "member of a Linux software RAID";
pub(super) const MD_0_90: &str = "member of a Linux software RAID (md 0.90)";
/// The name of Core Storage.
pub const CORE_STORAGE: &str = "Apple Core Storage (FileVault 2)";
/// The name of an external log of XFS.
pub(super) const XFS_LOG: &str = "external log of an XFS file system";
const MD_1_0: &str = "member of a Linux software RAID (md 1.0)";
pub(super) const DDF_NAME: &str = "member of a RAID in the format of SNIA (DDF)";

/// The place of the superblock of ext, HFS, Minix and others.
const SUPERBLOCK: usize = 1024;
/// The places of UFS's superblocks within the head, and of the number within a superblock.
const UFS: [usize; 3] = [0, 8 << 10, 64 << 10];
const UFS_MAGIC: usize = 1372;
/// ZFS's list of the devices of the pool.
const ZFS_LIST: usize = 16 << 10;
/// The volume descriptors of UDF, and how many are examined.
const DESCRIPTORS: usize = 32 << 10;
const DESCRIPTORS_MAX: usize = 16;

type Found<'a> = &'a mut dyn FnMut(&'static str, &'static str);

/// Examines the start of a volume.
pub(super) fn of_head(head: &[u8], found: Found<'_>) {
    if let Some(name) = ext(head) {
        found(name, if name.starts_with("journal") { "" } else { "ext" });
    }
    if is_fat(head) {
        found("FAT", "fat");
    }
    for at in UFS {
        if let Some(name) = ufs(head, at) {
            found(name, "ufs");
        }
    }
    let superblock = head.get(SUPERBLOCK..).unwrap_or_default();
    if superblock.starts_with(b"BD") && is_hfs(superblock) {
        // A wrapper around HFS+ has its signature here.
        let wraps = superblock.get(124..126).is_some_and(|inner| inner == b"H+" || inner == b"HX");
        found(if wraps { "HFS+ in a wrapper" } else { "HFS" }, if wraps { "hfs" } else { "" });
    }
    if superblock.starts_with(b"\xd2\xd7") && is_mfs(superblock) {
        found("MFS", "");
    }
    if let Some(name) = minix(superblock) {
        found(name, "");
    }
    // Revision 2, the number, and the size of the superblock in bytes.
    if u32_at(superblock, 0) == 2 && u16_at(superblock, 6) == 0x3434 && (0x100..=1024).contains(&u16_at(superblock, 8))
    {
        found("NILFS2", "");
    }
    if head.get(88..90) == Some(b"CS") && u16_at(head, 8) == 1 && u16_at(head, 10) == 0x10 {
        found(CORE_STORAGE, "");
    }
    if is_udf(head) {
        found("UDF", "");
    }
    let list = head.get(ZFS_LIST..).unwrap_or_default();
    if contains(list, b"pool_guid") && contains(list, b"vdev_tree") {
        found(ZFS, "");
    }
    if u32_at(head, 512) == 0x8256_4557 && u32_at(head, 512 + 132) == 0x8256_4557 {
        found("BSD disk label", "");
    }
}

/// Examines the end of a volume of `size` bytes.
pub(super) fn of_tail(tail: &[u8], size: u64, found: &mut dyn FnMut(&'static str)) {
    let from_end = |bytes: u64| usize::try_from(bytes).ok().and_then(|bytes| tail.len().checked_sub(bytes));
    // In sectors: sixteen before the end, rounded down to eight.
    let md_at = ((size / 512).saturating_sub(16) & !7) * 512;
    if let Some(at) = from_end(size - md_at.min(size))
        && tail.get(at..).is_some_and(|rest| rest.starts_with(b"\xfc\x4e\x2b\xa9\x01\0\0\0"))
    {
        found(MD_1_0);
    }
    // In the last whole 4 KiB, somewhere in the first numbers, by version.
    let drbd_at = (size / 4096 * 4096).saturating_sub(4096);
    if let Some(block) = from_end(size - drbd_at).and_then(|at| tail.get(at..)) {
        let numbers = block.chunks_exact(4).take(32);
        if numbers.into_iter().any(|four| four.starts_with(b"\x83\x74\x02") && (0x67..=0x6d).contains(&four[3])) {
            found("DRBD");
        }
    }
    let Some(sector) = from_end(512).and_then(|at| tail.get(at..)) else { return };
    if u16_at(sector, 0) == 0xaa55 && sector[2] <= 1 && is_via(sector) {
        found("member of a RAID of a VIA controller");
    }
    let sum = |words: usize| (0..words).fold(0u16, |sum, word| sum.wrapping_add(u16_at(sector, 2 * word)));
    if u32_at(sector, 0x60) == 0x2f00_0000 && sum(159).wrapping_neg() == u16_at(sector, 318) {
        found("member of a RAID of a Silicon Image controller");
    }
    if sector.starts_with(b"JM") && matches!(sum(64), 0 | 1) {
        found("member of a RAID of a JMicron controller");
    }
}

/// Examines a piece further behind, which begins at `at`.
pub(super) fn of_further(at: u64, piece: &[u8], found: Found<'_>) {
    match at {
        0x4_0000 => {
            if let Some(name) = ufs(piece, 0) {
                found(name, "ufs");
            }
        }
        0x10_0000 if piece.starts_with(b"\x0d\xd0\x01\xc0") => found("VMFS volume", ""),
        0x20_0000 if piece.starts_with(b"\x5e\xf1\xab\x2f") => found("VMFS", ""),
        _ => {}
    }
}

/// Whether a superblock of Linux's software RAID 0.90 begins here, in either byte order.
pub(super) fn is_md_old(bytes: &[u8]) -> bool {
    let version = |number: fn([u8; 4]) -> u32| {
        let at = |at: usize| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, number);
        at(0) == 0xa92b_4efc && at(4) == 0
    };
    version(u32::from_le_bytes) || version(u32::from_be_bytes)
}

/// Whether a record of XFS's log begins at one of the sectors: the number, a version, a length, and the format of the
/// machine that wrote it, all with the highest byte first. As in libblkid.
pub(super) fn has_xfs_log_record(bytes: &[u8]) -> bool {
    bytes.chunks_exact(512).any(|sector| {
        let version = big_endian(sector, 8);
        big_endian(sector, 0) == 0xfeed_babe
            && version != 0
            && version & !3 == 0
            && (1..=i32::MAX as u32).contains(&big_endian(sector, 12))
            && (1..=3).contains(&big_endian(sector, 300))
    })
}

/// Whether ZFS's uberblocks are here: the number at the start of a KiB, in either byte order.
pub(super) fn has_uberblocks(bytes: &[u8]) -> bool {
    bytes.chunks_exact(1024).any(|block| matches!(u64_at(block, 0), 0x00ba_b10c | 0x0cb1_ba00_0000_0000))
}

/// The member of the ext family, by its features.
fn ext(head: &[u8]) -> Option<&'static str> {
    let superblock = head.get(SUPERBLOCK..2 * SUPERBLOCK)?;
    if u16_at(superblock, 56) != 0xef53 || u32_at(superblock, 24) > 6 {
        return None;
    }
    let (compatible, incompatible, read_only) =
        (u32_at(superblock, 92), u32_at(superblock, 96), u32_at(superblock, 100));
    Some(match () {
        () if incompatible & 0x8 != 0 => "journal of an ext file system",
        () if read_only & 0x200 != 0 => "ext4 with bigalloc",
        () if incompatible & 0x1_0000 != 0 => "ext4 with encrypted files",
        () if incompatible & !0x6 != 0 || read_only & !0x7 != 0 => "ext4",
        () if compatible & 0x4 != 0 => "ext3",
        () => "ext2",
    })
}

/// Whether this is the boot sector of a FAT file system: the parameters that every such sector has make sense.
fn is_fat(head: &[u8]) -> bool {
    let (sector, per_cluster) = (u16_at(head, 11), head.get(13).copied().unwrap_or(0));
    let (tables, media) = (head.get(16).copied().unwrap_or(0), head.get(21).copied().unwrap_or(0));
    let has_jump = matches!(head.first(), Some(0xeb | 0xe9));
    (has_jump || head.get(510..512) == Some(&[0x55, 0xaa]))
        && sector.is_power_of_two()
        && (512..=4096).contains(&sector)
        && per_cluster.is_power_of_two()
        && u16_at(head, 14) > 0
        && (1..=4).contains(&tables)
        && media >= 0xf0
        && (u16_at(head, 19) > 0 || u32_at(head, 32) > 0)
}

fn ufs(bytes: &[u8], superblock: usize) -> Option<&'static str> {
    let number = bytes.get(superblock + UFS_MAGIC..superblock + UFS_MAGIC + 4)?.try_into().ok()?;
    [u32::from_le_bytes(number), u32::from_be_bytes(number)].into_iter().find_map(|number| match number {
        0x0001_1954 | 0x0009_5014 | 0x0019_5612 | 0x0523_1994 => Some("UFS1"),
        0x1954_0119 => Some("UFS2"),
        _ => None,
    })
}

/// The size of an allocation block is a multiple of 512.
fn is_hfs(superblock: &[u8]) -> bool {
    let size = big_endian(superblock, 20);
    size > 0 && size.is_multiple_of(512)
}

fn is_mfs(superblock: &[u8]) -> bool {
    let size = big_endian(superblock, 20);
    size > 0 && size.is_multiple_of(512) && superblock.get(36).is_some_and(|name| (1..=27).contains(name))
}

fn big_endian(bytes: &[u8], at: usize) -> u32 {
    u32_at(bytes, at).swap_bytes()
}

/// Minix numbers its versions; a clean or an unclean state, and bitmaps, have to go with the number.
fn minix(superblock: &[u8]) -> Option<&'static str> {
    let (inode_map, zone_map, state) = (u16_at(superblock, 4), u16_at(superblock, 6), u16_at(superblock, 18));
    if inode_map > 0 && zone_map > 0 && state <= 3 && u16_at(superblock, 10) <= 8 {
        match u16_at(superblock, 16) {
            0x137f | 0x138f => return Some("Minix, version 1"),
            0x2468 | 0x2478 => return Some("Minix, version 2"),
            _ => {}
        }
    }
    let block = u16_at(superblock, 28);
    let is_third = u16_at(superblock, 24) == 0x4d5a && u16_at(superblock, 6) > 0 && u16_at(superblock, 8) > 0;
    (is_third && block.is_power_of_two() && block >= 512).then_some("Minix, version 3")
}

/// Whether the volume descriptors name the standard of UDF, in blocks of 2 or 4 KiB.
fn is_udf(head: &[u8]) -> bool {
    [2048, 4096].into_iter().any(|block| {
        (0..DESCRIPTORS_MAX).any(|number| {
            let at = DESCRIPTORS + number * block + 1;
            head.get(at..at + 5).is_some_and(|name| name == b"NSR02" || name == b"NSR03")
        })
    })
}

/// The checksum of a record of VIA: the sum of the first fifty bytes.
fn is_via(sector: &[u8]) -> bool {
    sector[..50].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == sector[50]
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
