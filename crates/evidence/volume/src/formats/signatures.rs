//! Signatures that are long enough to decide by themselves, as in libblkid's list.

/// The place of a signature.
pub(super) enum At {
    /// Bytes from the start of the volume.
    Start(usize),
    /// Sectors from its end, and bytes from the start of that sector.
    End { sectors: usize, inside: usize },
}

/// A signature of a format.
pub(super) struct Signature {
    pub(super) at: At,
    pub(super) magic: &'static [u8],
    pub(super) name: &'static str,
    /// See [`Format::family`](super::Format::family).
    pub(super) family: &'static str,
}

const fn start(at: usize, magic: &'static [u8], name: &'static str) -> Signature {
    Signature { at: At::Start(at), magic, name, family: "" }
}

const fn end(sectors: usize, inside: usize, magic: &'static [u8], name: &'static str) -> Signature {
    Signature { at: At::End { sectors, inside }, magic, name, family: "" }
}

const fn listed(at: usize, magic: &'static [u8], name: &'static str, family: &'static str) -> Signature {
    Signature { at: At::Start(at), magic, name, family }
}

/// The name of LUKS.
pub const LUKS: &str = "LUKS, encrypted";
/// The name of BitLocker.
pub const BITLOCKER: &str = "BitLocker, encrypted";
/// The name of a physical volume of LVM2.
pub const LVM2: &str = "LVM2 physical volume";
/// The name of APFS.
pub const APFS: &str = "APFS";
const SWAP: &str = "Linux swap";
const HIBERNATED: &str = "Linux swap with a hibernated system";
const OCFS2: &str = "OCFS2";
const REISERFS: &str = "ReiserFS";
const BCACHEFS: &str = "bcachefs";
const CRAMFS: &str = "cramfs";
const JFFS2: &str = "JFFS2";
const SYSV: &str = "System V file system";
const MD_1_1: &str = "member of a Linux software RAID (md 1.1)";
const MD_1_2: &str = "member of a Linux software RAID (md 1.2)";
const HIGHPOINT: &str = "member of a RAID of a HighPoint controller";

pub(super) const SIGNATURES: &[Signature] = &[
    // Encrypted volumes.
    start(3, b"-FVE-FS-", BITLOCKER),
    start(0xA0, b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01", BITLOCKER),
    start(0xA0, b"\x3b\x4d\xa8\x92\x80\xdd\x0e\x4d\x9e\x4e\xb1\xe3\x28\x4e\xae\xd8", BITLOCKER),
    start(0x1A8, b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01", BITLOCKER),
    start(0, b"LUKS\xba\xbe", LUKS),
    start(0x4000, b"SKUL\xba\xbe", LUKS),
    start(0x8000, b"SKUL\xba\xbe", LUKS),
    start(0x1_0000, b"SKUL\xba\xbe", LUKS),
    end(1, 0, b"GEOM::ELI", "GELI, encrypted"),
    // Volume managers, caches and parts of software RAIDs.
    start(0, b"\xfc\x4e\x2b\xa9\x01\0\0\0", MD_1_1),
    start(0x1000, b"\xfc\x4e\x2b\xa9\x01\0\0\0", MD_1_2),
    start(0x18, b"LVM2 001", LVM2),
    start(0x218, b"LVM2 001", LVM2),
    start(0x418, b"LVM2 001", LVM2),
    start(0x618, b"LVM2 001", LVM2),
    start(0, b"HM\x01\0", "LVM1 physical volume"),
    start(0, b"HM\x02\0", "LVM1 physical volume"),
    start(0xC00, b"PRIVHEAD", "Windows dynamic disk (LDM)"),
    end(1, 0, b"PRIVHEAD", "Windows dynamic disk (LDM)"),
    start(0, b"SPACEDB ", "Windows Storage Spaces"),
    start(0x1000, b"SPACEDB ", "Windows Storage Spaces"),
    start(0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
    start(0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", BCACHEFS),
    start(0, b"bluestore block device", "Ceph BlueStore"),
    start(0, b"SnAp", "device-mapper snapshot store"),
    start(0, b"verity\0\0", "dm-verity hashes"),
    start(0, b"integrt\0", "dm-integrity"),
    start(0, b"dmvdo001", "VDO"),
    start(0x204, b"!Stra0tis\x86\xff\x02^\x41rh", "Stratis pool member"),
    start(0x1204, b"!Stra0tis\x86\xff\x02^\x41rh", "Stratis pool member"),
    start(0x2000, b"marcCRAM", "member of an OpenBSD softraid"),
    start(0x20, b"ORCLDISK", "Oracle ASM disk"),
    start(0x200, b"$DRBDmgr=q", "DRBD Manage control volume"),
    start(0, b"DRBDdlh*", "DRBD proxy data log"),
    end(1, 0, b"GEOM::MIRROR", "member of a FreeBSD mirror"),
    end(1, 0, b"GEOM::STRIPE", "member of a FreeBSD stripe"),
    end(1, 0, b"GEOM::CONCAT", "member of a FreeBSD concatenation"),
    end(1, 0, b"GEOM::RAID3", "member of a FreeBSD RAID 3"),
    end(1, 0, b"GEOM::RAID\0", "member of a FreeBSD RAID"),
    end(1, 0, b"GEOM::VIRSTOR", "member of a FreeBSD virtual store"),
    // Members of RAIDs of controllers and firmware.
    end(2, 0, b"Intel Raid ISM Cfg Sig. ", "member of an Intel RAID"),
    end(1, 0, b"\xde\x11\xde\x11", super::structure::DDF_NAME),
    end(1, 0, b"$XIDE$", "member of a RAID of an LSI MegaRAID controller"),
    end(2, 0, b"NVIDIA", "member of an Nvidia RAID"),
    end(1, 0, b"\x37\xfc\x4d\x1e", "member of a RAID of an Adaptec controller"),
    end(11, 0, b"\xf3\x16\x78\x5a", HIGHPOINT),
    end(11, 0, b"\xfd\x16\x78\x5a", HIGHPOINT),
    start(0x1000, b"\xf0\x16\x78\x5a", HIGHPOINT),
    start(0x1000, b"\xfd\x16\x78\x5a", HIGHPOINT),
    start(0x1220, b"\xf0\x16\x78\x5a", HIGHPOINT),
    start(0x1220, b"\xfd\x16\x78\x5a", HIGHPOINT),
    // File systems that triage lists.
    listed(3, b"NTFS    ", "NTFS", "ntfs"),
    listed(3, b"EXFAT   ", "exFAT", "exfat"),
    listed(0x400, b"H+\0\x04", "HFS+", "hfs"),
    listed(0x400, b"HX\0\x05", "HFSX", "hfs"),
    listed(0x8001, b"CD001", "ISO 9660", "iso9660"),
    // Other file systems.
    start(0x20, b"NXSB", APFS),
    start(0x1_0040, b"_BHRfS_M", "Btrfs"),
    start(3, b"ReFS\0\0\0\0", "ReFS"),
    start(0, b"XFSB", "XFS"),
    start(0, b"EXFS", "EXFS"),
    start(0x400, b"\x10\x20\xf5\xf2", "F2FS"),
    start(0x400, b"\xe2\xe1\xf5\xe0", "EROFS"),
    start(0, b"hsqs", "SquashFS"),
    start(0, b"sqsh", "SquashFS"),
    start(0, b"-rom1fs-", "romfs"),
    start(0, b"\x45\x3d\xcd\x28", CRAMFS),
    start(0, b"\x28\xcd\x3d\x45", CRAMFS),
    start(0x200, b"\x45\x3d\xcd\x28", CRAMFS),
    start(0x200, b"\x28\xcd\x3d\x45", CRAMFS),
    start(0x8000, b"JFS1", "JFS"),
    start(0x2034, b"ReIsErFs", REISERFS),
    start(0x2014, b"ReIsErFs", REISERFS),
    start(0x1_0034, b"ReIsErFs", REISERFS),
    start(0x1_0034, b"ReIsEr2Fs", REISERFS),
    start(0x1_0034, b"ReIsEr3Fs", REISERFS),
    start(0x1_0000, b"ReIsEr4", "Reiser4"),
    start(0x1_0000, b"\x01\x16\x19\x70", "GFS or GFS2"),
    start(0x400, b"OCFSV2", OCFS2),
    start(0x800, b"OCFSV2", OCFS2),
    start(0x1000, b"OCFSV2", OCFS2),
    start(0x2000, b"OCFSV2", OCFS2),
    start(8, b"OracleCFS", "OCFS"),
    start(0x2000, b"\x49\xe8\x95\xf9", "HPFS"),
    start(0x400, b"\xf5\xfc\x01\xa5", "VxFS"),
    start(0x2000, b"\xa5\x01\xfc\xf5", "VxFS"),
    start(0x1000, b"SPB5", "Novell Storage Services"),
    start(0x200, b"BFS1", "BeFS"),
    start(0x220, b"1SFB", "BeFS"),
    start(0x220, b"BFS1", "BeFS"),
    start(0, b"\xce\xfa\xad\x1b", "SCO BFS"),
    start(0, b"SFOZ", "zonefs"),
    start(0, b"UBI#", "UBI"),
    start(0, b"\x31\x18\x10\x06", "UBIFS"),
    start(0, b"\x85\x19\x03\x20", JFFS2),
    start(0, b"\x85\x19\x01\xe0", JFFS2),
    start(0, b"\x85\x19\x02\xe0", JFFS2),
    start(0, b"\xc8\x41\x4d\x4d\xc5\x52\x30\x31", "HAMMER"),
    start(0, b"\x11\x20\x17\x05\x32\x4d\x41\x48", "HAMMER2"),
    start(0x8009, b"CDROM", "High Sierra"),
    start(0x3F8, b"\x20\x7e\x18\xfd", SYSV),
    start(0x3F8, b"\xfd\x18\x7e\x20", SYSV),
    start(0x7F8, b"\x44\x55\x2b\0", "Xenix file system"),
    start(0, b"\0\x6d\x70\x6f\x6f\x6c\x44\x65\x76", "mpool"),
    // Swap: the signature ends the first page, whose size depends on the processor.
    start(0xFF6, b"SWAP-SPACE", SWAP),
    start(0xFF6, b"SWAPSPACE2", SWAP),
    start(0x1FF6, b"SWAPSPACE2", SWAP),
    start(0x3FF6, b"SWAPSPACE2", SWAP),
    start(0x7FF6, b"SWAPSPACE2", SWAP),
    start(0xFFF6, b"SWAPSPACE2", SWAP),
    start(0xFF6, b"S1SUSPEND", HIBERNATED),
    start(0xFF6, b"S2SUSPEND", HIBERNATED),
    start(0xFF6, b"ULSUSPEND", HIBERNATED),
    start(0xFF6, b"LINHIB0001", HIBERNATED),
    start(0xFF6, b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c", HIBERNATED),
    start(0xFFF6, b"S1SUSPEND", HIBERNATED),
    // Partition tables that nothing here reads.
    start(0, b"\x0b\xe5\xa9\x41", "SGI partition table"),
    start(0, b"RDSK", "Amiga partition table"),
    start(0x20C, b"\xee\xde\x0d\x60", "Solaris partition table"),
];
