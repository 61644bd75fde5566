//! Decompresses one frame, or several that follow each other, and checks them.

use std::io::{BufRead as _, Chain, Cursor, ErrorKind, Read, Result as IoResult};

use bytes::Bytes;
use cheetah_device::data::is_zero;
use cheetah_device::{Data, Error as DeviceError, Result as DeviceResult};

use super::Image;
use super::frames::{Frame, FrameState};
use super::gzip;
use super::packed::PackedReader;
use super::xz::{self, BlockEnds};
use crate::detect::{Compression, zstd as zstd_frames};
use crate::file::ImageFile;

/// The window that a zstd frame may require, as a power of two: 128 MiB, as much as the `zstd` program allows by
/// default.
pub(super) const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The memory that an xz block may require, in KiB: enough for each preset of the `xz` program, and for twice the
/// largest.
pub(super) const XZ_MEMORY_KIB_MAX: u32 = 160 << 10;
/// The size of a run of zeros that is worth representing as a hole.
const HOLE_BYTES: usize = 64 << 10;

type XzBlock = Chain<Chain<Cursor<Vec<u8>>, PackedReader>, Cursor<Vec<u8>>>;

/// The decoder of one frame. It returns the end of the content only if the frame's checksum matches.
pub(super) enum FrameDecoder {
    Gzip(Box<flate2::bufread::GzDecoder<PackedReader>>),
    Bzip2(Box<bzip2::bufread::BzDecoder<PackedReader>>),
    Zstd(Box<zstd::Decoder<'static, PackedReader>>),
    Xz(Box<lzma_rust2::XzReader<XzBlock>>),
}

impl FrameDecoder {
    /// Returns the decoder of the frame with which `packed` begins; a block of an xz stream is put between `ends`.
    pub fn new(compression: Compression, ends: BlockEnds, packed: PackedReader) -> IoResult<Self> {
        Ok(match compression {
            Compression::Gzip => Self::Gzip(Box::new(flate2::bufread::GzDecoder::new(packed))),
            Compression::Bzip2 => Self::Bzip2(Box::new(bzip2::bufread::BzDecoder::new(packed))),
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(packed)?.single_frame();
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Self::Zstd(Box::new(decoder))
            }
            Compression::Xz => {
                let stream = Cursor::new(ends.before).chain(packed).chain(Cursor::new(ends.after));
                Self::Xz(Box::new(lzma_rust2::XzReader::new_mem_limit(stream, false, XZ_MEMORY_KIB_MAX)))
            }
        })
    }

    /// Returns the reader of the compressed bytes, after those that were decoded.
    pub fn into_packed(self) -> PackedReader {
        match self {
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Bzip2(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
            Self::Xz(decoder) => decoder.into_inner().into_inner().0.into_inner().1,
        }
    }
}

/// The decoder of frames that follow each other, up to the end of the compressed bytes.
pub(super) struct Decoder {
    compression: Compression,
    /// The frame that is being decoded; `None` behind the last.
    frame: Option<FrameDecoder>,
    /// The bytes behind the last frame.
    behind: Option<PackedReader>,
}

impl Decoder {
    /// Returns the decoder of the frames with which `packed` begins; a block of an xz stream is put between `ends`.
    pub fn new(compression: Compression, ends: BlockEnds, packed: PackedReader) -> IoResult<Self> {
        let frame = Some(FrameDecoder::new(compression, ends, packed)?);
        Ok(Self { compression, frame, behind: None })
    }

    /// Checks that the frames end here, with the content and with the compressed bytes.
    pub fn finish(mut self) -> IoResult<()> {
        if self.read(&mut [0])? != 0 {
            return Err(damaged("it holds more than its index says"));
        }
        match self.behind.map_or(0, |packed| packed.left()) {
            0 => Ok(()),
            _ => Err(damaged("it is shorter than its index says")),
        }
    }
}

impl Read for Decoder {
    fn read(&mut self, buf: &mut [u8]) -> IoResult<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            let Some(frame) = self.frame.take() else { break };
            let mut packed = frame.into_packed();
            // An xz block is a stream only together with its ends.
            if self.compression != Compression::Xz && skip_to_frame(&mut packed, self.compression)? {
                self.frame = Some(FrameDecoder::new(self.compression, BlockEnds::default(), packed)?);
            } else {
                self.behind = Some(packed);
            }
        }
        Ok(0)
    }
}

/// What follows the compressed data is neither a frame nor padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("other data follow the compressed data")]
pub(super) struct OtherData;

/// Skips padding and skippable frames between frames. False at the end of the file.
pub(super) fn skip_to_frame(reader: &mut PackedReader, compression: Compression) -> IoResult<bool> {
    loop {
        let head = reader.peek(zstd_frames::SKIPPABLE_HEAD_LEN)?;
        let is_frame = match compression {
            Compression::Gzip => head.starts_with(&gzip::MAGIC),
            Compression::Bzip2 => head.starts_with(b"BZh"),
            Compression::Zstd => head.starts_with(&zstd_frames::MAGIC),
            Compression::Xz => head.starts_with(&xz::MAGIC),
        };
        if is_frame || head.is_empty() {
            return Ok(is_frame);
        }
        if compression == Compression::Zstd && zstd_frames::is_skippable(&head) {
            let len = head.get(4..).and_then(|len| len.first_chunk()).map_or(0, |len| u32::from_le_bytes(*len));
            let len = zstd_frames::SKIPPABLE_HEAD_LEN + u64::from(len);
            if len > reader.left() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            reader.skip(len)?;
            continue;
        }
        // Padding of zeros up to the end, as on tapes and disks.
        while let ready @ [_, ..] = reader.fill_buf()? {
            if ready.iter().any(|byte| *byte != 0) {
                return Err(std::io::Error::new(ErrorKind::InvalidData, OtherData));
            }
            let len = ready.len() as u64;
            reader.skip(len)?;
        }
    }
}

impl Read for FrameDecoder {
    fn read(&mut self, buf: &mut [u8]) -> IoResult<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buf),
            Self::Bzip2(decoder) => decoder.read(buf),
            Self::Zstd(decoder) => decoder.read(buf),
            Self::Xz(decoder) => decoder.read(buf),
        }
    }
}

/// Returns the content of a frame.
pub(super) fn unpack(image: &Image, frame: Frame) -> DeviceResult<Data> {
    if frame.state == FrameState::Damaged {
        return Err(lost(&*image.file, frame));
    }
    let unpack = || {
        let mut decoder = image.decoder(frame)?;
        // At most the size of the largest frame that is unpacked as a whole.
        let mut content = Vec::with_capacity(frame.content.len as usize);
        decoder.by_ref().take(frame.content.len).read_to_end(&mut content)?;
        if content.len() as u64 != frame.content.len {
            return Err(damaged("it holds less than its index says"));
        }
        // The rest of the stream is damaged, which is known.
        if frame.state == FrameState::Whole {
            decoder.finish()?;
        }
        Ok(content)
    };
    unpack().map(sparse).map_err(|error| corrupt(&*image.file, frame, &error))
}

/// Returns the error of a frame that was found to be damaged when the file was opened.
pub(super) fn lost(file: &dyn ImageFile, frame: Frame) -> DeviceError {
    let device =
        format!("{}, from offset {} of the file on, as was found when it was opened", file.name(), frame.packed.offset);
    DeviceError::Corrupt { device: device.into(), range: frame.content }
}

/// Returns the error of a frame that could not be decoded.
pub(super) fn corrupt(file: &dyn ImageFile, frame: Frame, error: &std::io::Error) -> DeviceError {
    let range = frame.content;
    match error.get_ref().and_then(|error| error.downcast_ref::<DeviceError>()) {
        // The file could not be read: the error of the disk below, for the content that depends on it.
        Some(DeviceError::Unreadable { why, .. }) => {
            DeviceError::Unreadable { device: file.name().into(), range, why: why.clone() }
        }
        Some(other) => other.clone(),
        None => {
            let device = format!("{}, at offset {} of the file ({error})", file.name(), frame.packed.offset);
            DeviceError::Corrupt { device: device.into(), range }
        }
    }
}

pub(super) fn damaged(why: &str) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, why)
}

/// Returns the bytes with long runs of zeros as holes.
fn sparse(content: Vec<u8>) -> Data {
    let content = Bytes::from(content);
    let (mut data, mut kept) = (Data::new(), 0);
    for start in (0..content.len()).step_by(HOLE_BYTES) {
        let end = (start + HOLE_BYTES).min(content.len());
        if is_zero(&content[start..end]) {
            data.append(content.slice(kept..start).into());
            data.append(Data::zeros((end - start) as u64));
            kept = end;
        }
    }
    data.append(content.slice(kept..).into());
    data
}
