//! Detects the format of a file from its first and last bytes. No I/O.

pub(crate) mod zstd;

use self::zstd::is_zstd;

/// The number of bytes at the start of a file that detection needs.
pub const START_LEN: usize = 1024;

/// The number of bytes at the end that detection needs: the footer of a VHD or a DMG.
pub const END_LEN: usize = 512;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An Expert Witness image: E01, S01 or Ex01.
    Ewf,
    /// A ZIP archive, the container of AFF4 images.
    Zip,
    /// QEMU's copy-on-write image, version 2 or 3.
    Qcow2,
    /// VMware's disk: sparse with an embedded descriptor, or a text descriptor.
    Vmdk,
    /// Virtual PC's disk.
    Vhd,
    /// Hyper-V's disk.
    Vhdx,
    /// A compressed file, perhaps of a raw image.
    Compressed(Compression),
    /// A known format that is not supported.
    Unsupported(Unsupported),
    /// No known format: a raw image.
    Unknown,
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip, or its blocked form BGZF.
    Gzip,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The program that decompresses it.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }

    /// A command that compresses in blocks, which can be read at random.
    pub const fn in_blocks(self) -> &'static str {
        match self {
            Self::Gzip => "bgzip disk.raw",
            Self::Bzip2 => "pbzip2 disk.raw",
            Self::Xz => "xz --block-size=16MiB disk.raw",
            Self::Zstd => "pzstd disk.raw",
        }
    }
}

/// A format that is not supported, and the alternative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported {
    /// The description after `this is …`.
    pub what: &'static str,
    /// The next step for the user.
    pub instead: &'static str,
}

const EXPORT: &str = "export it to E01 or raw with the program that made it";
const UNPACK: &str = "unpack it first";
const CONVERT: &str = "convert it with qemu-img convert -O raw";

/// The signatures of files that are refused by name.
const REFUSED: [(&[u8], &str, &str); 23] = [
    (b"LVF\x09\x0d\x0a\xff\x00", "an L01 logical evidence file: it holds files, not a disk", EXPORT),
    (b"LEF2\x0d\x0a\x81\x00", "an Lx01 logical evidence file: it holds files, not a disk", EXPORT),
    (b"ADSEGMENTEDFILE\x00", "an AD1 logical image: it holds files, not a disk", EXPORT),
    (b"ADCRYPT\x00", "an image encrypted by AccessData's tools", "decrypt it first"),
    (b"AFF10\r\n\x00", "an AFF image of version 3 or older", "convert it with affconvert, or export it to E01 or raw"),
    (b"AFFKEY", "an encrypted AFF image", "decrypt it first"),
    (b"QFI\xfb\x00\x00\x00\x01", "a QCOW image of version 1", CONVERT),
    (b"COWD", "an extent of a VMDK", "give the descriptor, the small .vmdk file beside it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"PK\x07\x08", "a part of a ZIP archive in several files", UNPACK),
    (b"MSWIM\x00\x00\x00", "a WIM archive: it holds files, not a disk", "apply it to a disk first"),
    (b"\x04\x22\x4d\x18", "a file compressed with lz4", UNPACK),
    (b"LZIP\x01", "a file compressed with lzip", UNPACK),
    (b"\x89LZO\x00\x0d\x0a\x1a\x0a", "a file compressed with lzop", UNPACK),
    (b"\xff\x06\x00\x00sNaPpY", "a file compressed with snappy", UNPACK),
    (b"MSCF\x00\x00\x00\x00", "a cabinet archive", UNPACK),
    (b"070701", "a cpio archive", UNPACK),
    (b"070707", "a cpio archive", UNPACK),
    (b"QED\x00", "a QED image", CONVERT),
    (b"WithoutFreeSpace", "a Parallels image", CONVERT),
    (b"WithouFreSpacExt", "a Parallels image", CONVERT),
    (b"encrcdsa", "an encrypted Apple disk image (DMG)", "decrypt it first"),
];

/// Returns the format of a file of `size` bytes from its first [`START_LEN`] and last [`END_LEN`] bytes (or all, if
/// fewer).
pub fn detect(start: &[u8], end: &[u8], size: u64) -> Format {
    if let Some((_, what, instead)) = REFUSED.into_iter().find(|(magic, ..)| start.starts_with(magic)) {
        return Format::Unsupported(Unsupported { what, instead });
    }
    let magics: [(&[u8], Format); 11] = [
        (b"EVF\x09\x0d\x0a\xff\x00", Format::Ewf),
        (b"EVF2\x0d\x0a\x81\x00", Format::Ewf),
        (b"PK\x03\x04", Format::Zip),
        (b"PK\x05\x06", Format::Zip),
        (b"QFI\xfb", Format::Qcow2),
        (b"KDMV", Format::Vmdk),
        (b"# Disk DescriptorFile", Format::Vmdk),
        (b"vhdxfile", Format::Vhdx),
        (b"conectix", Format::Vhd),
        (b"\x1f\x8b\x08", Format::Compressed(Compression::Gzip)),
        (b"\xfd7zXZ\0", Format::Compressed(Compression::Xz)),
    ];
    if let Some((_, format)) = magics.into_iter().find(|(magic, _)| start.starts_with(magic)) {
        return format;
    }
    if is_bzip2(start) {
        return Format::Compressed(Compression::Bzip2);
    }
    if is_zstd(start) {
        return Format::Compressed(Compression::Zstd);
    }
    if start.get(257..262) == Some(b"ustar") {
        return Format::Unsupported(Unsupported { what: "a tar archive", instead: UNPACK });
    }
    if start.get(0x40..0x44) == Some(&[0x7f, 0x10, 0xda, 0xbe]) {
        return Format::Unsupported(Unsupported { what: "a VirtualBox VDI image", instead: CONVERT });
    }
    if end.len() == END_LEN && end.starts_with(b"koly\0\0\0\x04") {
        return Format::Unsupported(Unsupported { what: "an Apple disk image (DMG)", instead: CONVERT });
    }
    // A raw image may end like a fixed VHD by chance or by malice: only a footer that is consistent counts.
    match Footer::parse(end) {
        Some(footer) if footer.fixed && footer.size.checked_add(END_LEN as u64) == Some(size) => Format::Vhd,
        _ => Format::Unknown,
    }
}

/// Whether a file begins with `BZh`, a digit, and the signature of a block or, in an empty stream, of its end; `BZh` alone
/// proves too little.
fn is_bzip2(start: &[u8]) -> bool {
    const BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
    const END: [u8; 6] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
    start.starts_with(b"BZh") && start.get(4..10).is_some_and(|next| next == BLOCK || next == END)
}

/// A VHD's footer (Virtual Hard Disk Image Format Specification, "Hard Disk Footer Format").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Bytes of the disk.
    pub size: u64,
    /// Whether the file holds the whole disk, followed by the footer.
    pub fixed: bool,
    /// Whether the file holds the changes since another file.
    pub differencing: bool,
}

impl Footer {
    /// Parses a footer of 512 bytes; `None` if it has no signature, or its checksum is wrong.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; END_LEN] = bytes.try_into().ok().filter(|_| bytes.starts_with(b"conectix"))?;
        let stored = u32::from_be_bytes(*bytes[64..].first_chunk()?);
        let others = bytes[..64].iter().chain(&bytes[68..]);
        if !others.fold(0u32, |sum, byte| sum.wrapping_add(u32::from(*byte))) != stored {
            return None;
        }
        let kind = u32::from_be_bytes(*bytes[60..].first_chunk()?);
        let size = u64::from_be_bytes(*bytes[48..].first_chunk()?);
        Some(Self { size, fixed: kind == 2, differencing: kind == 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn footer(kind: u8, size: u64) -> [u8; 512] {
        let mut footer = [0; 512];
        footer[..8].copy_from_slice(b"conectix");
        footer[48..56].copy_from_slice(&size.to_be_bytes());
        footer[63] = kind;
        let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
        footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
        footer
    }

    #[test]
    fn a_fixed_vhd_is_recognised_only_by_a_valid_footer() {
        let good = footer(2, 1 << 20);
        assert_eq!(detect(&[0; 1024], &good, (1 << 20) + 512), Format::Vhd);
        assert_eq!(detect(&[0; 1024], &good, (1 << 20) + 1024), Format::Unknown, "of another size");
        let mut bad = good;
        bad[100] = 1;
        assert_eq!(detect(&[0; 1024], &bad, (1 << 20) + 512), Format::Unknown, "a wrong checksum");
        assert!(Footer::parse(&footer(4, 7)).unwrap().differencing);
    }

    #[test]
    fn unsupported_formats_are_named() {
        for (start, name) in [
            (&b"LVF\x09\x0d\x0a\xff\x00\x01"[..], "L01"),
            (b"ADSEGMENTEDFILE\x00", "AD1"),
            (b"QFI\xfb\0\0\0\x01", "version 1"),
        ] {
            let Format::Unsupported(unsupported) = detect(start, start, 5) else { panic!("{name}") };
            assert!(unsupported.what.contains(name), "{unsupported:?}");
        }
        assert_eq!(detect(b"BZh91AY&SY", b"", 5), Format::Compressed(Compression::Bzip2));
        assert_eq!(detect(b"\x50\x2a\x4d\x18 is how this text begins", b"", 5), Format::Unknown);
        assert_eq!(
            detect(b"\x50\x2a\x4d\x18\x01\0\0\0?\x28\xb5\x2f\xfd", b"", 5),
            Format::Compressed(Compression::Zstd)
        );
        let empty = b"BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0";
        assert_eq!(detect(empty, b"", 14), Format::Compressed(Compression::Bzip2), "an empty stream");
        assert_eq!(detect(b"BZh9 is how this text begins", b"", 5), Format::Unknown);
        assert_eq!(detect(b"", b"", 0), Format::Unknown);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(start in prop::collection::vec(any::<u8>(), 0..200), end in prop::collection::vec(any::<u8>(), 0..600), size: u64) {
            detect(&start, &end, size);
        }
    }
}
