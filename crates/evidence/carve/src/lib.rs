//! Finds where files end that begin at a known place, by their structure.
//!
//! A file counts only if its structure says where it ends, and what the format has of checks holds: the checksums of PNG, gzip, 7z, event
//! logs and registry hives, the directories of ZIP and PDF, the lengths of the others. It is taken to lie in one piece, so a file in
//! several fragments is found only if nothing that is checked lies beyond the first.
//!
//! What is parsed is evidence, and may be hostile: nothing is allocated by a number that it gives, each step moves on, and no file is
//! longer than its format's [limit](Format::bytes_max), so a header without a file costs little.

#![forbid(unsafe_code)]

mod archives;
mod carver;
mod documents;
mod films;
mod pictures;
mod reader;
mod windows;

use cheetah_device::{DynDevice, Result};

pub use self::carver::{Carver, Counts};
use self::reader::Reader;

/// A format whose files can be carved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// JPEG (ISO/IEC 10918-1).
    Jpeg,
    /// PNG (W3C).
    Png,
    /// GIF 87a and 89a.
    Gif,
    /// PDF (ISO 32000).
    Pdf,
    /// ZIP (APPNOTE), up to 4 GiB.
    Zip,
    /// gzip (RFC 1952).
    Gzip,
    /// 7z.
    SevenZip,
    /// SQLite 3.
    Sqlite,
    /// ISO base media (ISO/IEC 14496-12): MP4, QuickTime, HEIF.
    Mp4,
    /// RIFF: AVI, WAV, WebP.
    Riff,
    /// Event logs of Windows.
    Evtx,
    /// Hives of the registry of Windows.
    Registry,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Jpeg,
        Self::Png,
        Self::Gif,
        Self::Pdf,
        Self::Zip,
        Self::Gzip,
        Self::SevenZip,
        Self::Sqlite,
        Self::Mp4,
        Self::Riff,
        Self::Evtx,
        Self::Registry,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::Pdf => "pdf",
            Self::Zip => "zip",
            Self::Gzip => "gzip",
            Self::SevenZip => "7z",
            Self::Sqlite => "sqlite",
            Self::Mp4 => "mp4",
            Self::Riff => "riff",
            Self::Evtx => "evtx",
            Self::Registry => "registry",
        }
    }

    /// The longest file that is looked for, in bytes. Where all of a file has to be read to find its end, it is less.
    pub const fn bytes_max(self) -> u64 {
        match self {
            Self::Jpeg | Self::Gif => 128 << 20,
            Self::Png | Self::Pdf => 256 << 20,
            Self::Zip | Self::Gzip | Self::SevenZip => 1 << 30,
            Self::Sqlite | Self::Mp4 | Self::Riff | Self::Evtx | Self::Registry => 4 << 30,
        }
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
    let found = match format {
        Format::Jpeg => pictures::jpeg(&mut reader).await,
        Format::Png => pictures::png(&mut reader).await,
        Format::Gif => pictures::gif(&mut reader).await,
        Format::Pdf => documents::pdf(&mut reader).await,
        Format::Sqlite => documents::sqlite(&mut reader).await,
        Format::Zip => archives::zip(&mut reader).await,
        Format::Gzip => archives::gzip(&mut reader).await,
        Format::SevenZip => archives::seven_zip(&mut reader).await,
        Format::Mp4 => films::mp4(&mut reader).await,
        Format::Riff => films::riff(&mut reader).await,
        Format::Evtx => windows::evtx(&mut reader).await,
        Format::Registry => windows::registry(&mut reader).await,
    }?;
    Ok(found.filter(|len| *len <= reader.len()))
}
