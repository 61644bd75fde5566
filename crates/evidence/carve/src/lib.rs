//! Finds where files end that begin at a known place, by their structure, and unpacks compressed data that begin at one.
//!
//! A file counts only if its structure says where it ends, and what the format has of checks holds: the checksums of PNG, gzip, 7z, event
//! logs and registry hives, the directories of ZIP and PDF, the lengths of the others. It is taken to lie in one piece, so a file in
//! several fragments is found only if nothing that is checked lies beyond the first.
//!
//! What is parsed is evidence, and may be hostile: nothing is allocated by a number that it gives, each step moves on, and no file is
//! longer than its format's [limit](Format::bytes_max). The bytes that are read for all headers without a file are limited, too ([`Carver`]).

#![forbid(unsafe_code)]

mod archives;
mod carver;
mod documents;
mod films;
mod pictures;
mod reader;
mod unpack;
mod windows;

use cheetah_device::{DynDevice, Result};

use self::archives::ZipChain;
pub use self::carver::{CarvedFile, Carver, Counts, Progress, write_table};
use self::reader::Reader;
pub use self::unpack::{End, Packing, Unpacked, unpack};

cheetah_kit::named! {
    /// A format whose files can be carved.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Format {
        /// JPEG (ISO/IEC 10918-1).
        Jpeg = "jpeg",
        /// PNG (W3C).
        Png = "png",
        /// GIF 87a and 89a.
        Gif = "gif",
        /// PDF (ISO 32000).
        Pdf = "pdf",
        /// ZIP (APPNOTE), up to 4 GiB.
        Zip = "zip",
        /// gzip (RFC 1952).
        Gzip = "gzip",
        /// 7z.
        SevenZip = "7z",
        /// SQLite 3.
        Sqlite = "sqlite",
        /// ISO base media (ISO/IEC 14496-12): MP4, QuickTime, HEIF.
        Mp4 = "mp4",
        /// RIFF: AVI, WAV, WebP.
        Riff = "riff",
        /// Event logs of Windows.
        Evtx = "evtx",
        /// Hives of the registry of Windows.
        Registry = "registry",
    }
}

impl Format {
    /// The longest file that is looked for, in bytes. Where all of a file has to be read to find its end, it is less.
    pub const fn bytes_max(self) -> u64 {
        match self {
            Self::Jpeg | Self::Gif => 128 << 20,
            Self::Png | Self::Pdf => 256 << 20,
            Self::Zip | Self::Gzip | Self::SevenZip => 1 << 30,
            Self::Sqlite | Self::Mp4 | Self::Riff | Self::Evtx | Self::Registry => 4 << 30,
        }
    }

    /// Whether all of a file is looked at to find its end. Of the others it may hold anything between the places that were looked at.
    const fn is_read_whole(self) -> bool {
        matches!(self, Self::Jpeg | Self::Png | Self::Gif | Self::Pdf | Self::Gzip | Self::Evtx | Self::Registry)
    }

    /// The usual end of its files' names.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::Pdf => "pdf",
            Self::Zip => "zip",
            Self::Gzip => "gz",
            Self::SevenZip => "7z",
            Self::Sqlite => "sqlite",
            Self::Mp4 => "mp4",
            Self::Riff => "riff",
            Self::Evtx => "evtx",
            Self::Registry => "hive",
        }
    }
}

/// Returns the length of the file that begins at an offset of a device, in bytes; `None` if there is no valid one.
///
/// # Errors
///
/// If something that has to be looked at cannot be read.
pub async fn length(device: &DynDevice, offset: u64, format: Format) -> Result<Option<u64>> {
    let mut reader = Reader::new(device, offset, format.bytes_max());
    Ok(end(&mut reader, format).await?.ok())
}

/// Why a place is not the beginning of a file.
enum NoFile {
    /// It is none.
    Invalid,
    /// It is one of files of ZIP archives that follow each other.
    Zip(ZipChain),
}

/// Where the file ends that the reader reads.
async fn end(reader: &mut Reader<'_>, format: Format) -> Result<std::result::Result<u64, NoFile>> {
    let found = match format {
        Format::Jpeg => pictures::jpeg(reader).await,
        Format::Png => pictures::png(reader).await,
        Format::Gif => pictures::gif(reader).await,
        Format::Pdf => documents::pdf(reader).await,
        Format::Sqlite => documents::sqlite(reader).await,
        Format::Zip => {
            let found = archives::zip(reader).await?;
            let len = reader.len();
            return Ok(found
                .map_err(NoFile::Zip)
                .and_then(|end| if end <= len { Ok(end) } else { Err(NoFile::Invalid) }));
        }
        Format::Gzip => archives::gzip(reader).await,
        Format::SevenZip => archives::seven_zip(reader).await,
        Format::Mp4 => films::mp4(reader).await,
        Format::Riff => films::riff(reader).await,
        Format::Evtx => windows::evtx(reader).await,
        Format::Registry => windows::registry(reader).await,
    }?;
    Ok(found.filter(|len| *len <= reader.len()).ok_or(NoFile::Invalid))
}
