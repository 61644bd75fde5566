//! How files begin: the signatures of common formats.

use super::Check;
use crate::expression::Candidate;

cheetah_kit::named! {
    /// A format of files that a signature tells.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FileKind {
        /// Pictures: JPEG.
        Jpeg = "jpeg",
        /// Pictures: PNG.
        Png = "png",
        /// Pictures: GIF.
        Gif = "gif",
        /// Documents: PDF.
        Pdf = "pdf",
        /// Archives, documents of office programs since 2007, programs for Java and Android: ZIP.
        Zip = "zip",
        /// Archives: 7z.
        SevenZip = "7z",
        /// Archives: RAR 1.5 to 5.
        Rar = "rar",
        /// Compressed: gzip.
        Gzip = "gzip",
        /// Compressed: bzip2.
        Bzip2 = "bzip2",
        /// Compressed: xz.
        Xz = "xz",
        /// Databases: SQLite 3.
        Sqlite = "sqlite",
        /// Films and sound: MP4, QuickTime, 3GP, HEIF.
        Mp4 = "mp4",
        /// Films and sound: AVI, WAV, and the pictures WebP.
        Riff = "riff",
        /// Films: Matroska and WebM.
        Matroska = "matroska",
        /// Documents of office programs before 2007, installers, thumbnails: OLE 2.
        Ole = "ole",
        /// Programs: Windows.
        Pe = "pe",
        /// Programs: Linux and other Unix.
        Elf = "elf",
        /// Event logs of Windows since Vista.
        Evtx = "evtx",
        /// Hives of the registry of Windows.
        Registry = "registry",
        /// Shortcuts of Windows.
        Lnk = "lnk",
        /// Records of started programs of Windows: prefetch files.
        Prefetch = "prefetch",
        /// Mailboxes of Outlook: PST and OST.
        Pst = "pst",
    }
}

impl FileKind {
    /// The expression of its signature, over bytes, and the check of each match. A signature has as much of the header as is the same
    /// in every file, so that few other bytes match.
    pub(super) const fn rule(self) -> (&'static str, Check) {
        let signature = match self {
            Self::Jpeg => r"\xff\xd8\xff[\xc0-\xc4\xdb\xdd\xe0-\xef\xfe]",
            Self::Png => r"\x89PNG\r\n\x1a\n\x00{3}\rIHDR",
            Self::Gif => r"GIF8[79]a",
            Self::Pdf => r"%PDF-[12]\.[0-9]",
            // The version that is needed to extract it, and flags that are in use.
            Self::Zip => r"PK\x03\x04[\x0a-\x3f]\x00[\x00-\x0f][\x00-\x28]",
            Self::SevenZip => r"7z\xbc\xaf\x27\x1c\x00[\x00-\x04]",
            Self::Rar => r"Rar!\x1a\x07(?:\x00|\x01\x00)",
            // Flags, a time, the level, and the system.
            Self::Gzip => r"\x1f\x8b\x08[\x00-\x1f](?s:.){4}[\x00\x02\x04][\x00-\x0d\xff]",
            Self::Bzip2 => r"BZh[1-9]1AY&SY",
            Self::Xz => r"\xfd7zXZ\x00\x00[\x00\x01\x04\x0a]",
            Self::Sqlite => r"SQLite format 3\x00",
            Self::Mp4 => r"\x00\x00[\x00-\x02](?s:.)ftyp[ -~]{4}",
            Self::Riff => r"RIFF(?s:.){4}(?:AVI |WAVE|WEBP)",
            Self::Matroska => r"\x1a\x45\xdf\xa3(?s:.){1,40}?\x42\x82[\x84\x88](?:webm|matroska)",
            Self::Ole => r"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            Self::Pe => return (r"MZ(?s:.){62,510}?PE\x00\x00", pe),
            Self::Elf => r"\x7fELF[\x01\x02][\x01\x02]\x01",
            Self::Evtx => r"ElfFile\x00",
            Self::Registry => r"regf(?s:.){16}\x01\x00{3}[\x00-\x06]\x00{3}",
            Self::Lnk => r"L\x00{3}\x01\x14\x02\x00{5}\xc0\x00{6}F",
            Self::Prefetch => r"(?:[\x11\x17\x1a\x1e\x1f]\x00{3}SCCA|MAM\x04)",
            Self::Pst => r"!BDN(?s:.){4}SM",
        };
        (signature, whole)
    }
}

pub(super) fn whole(candidate: &Candidate<'_>) -> Option<usize> {
    Some(candidate.text.len())
}

/// A program of Windows: its first header says where the second one is.
fn pe(candidate: &Candidate<'_>) -> Option<usize> {
    let place = candidate.text.get(60..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    (place as usize + 4 == candidate.text.len()).then_some(2)
}
