//! The .xz format (version 1.2): streams of blocks, each stream with an index at its end.

use std::io::Read;

use cheetah_device::ByteRange;
use cheetah_error::{Error, Result};
use flate2::Crc;

use super::frames::{Frame, Frames};
use super::packed::{PackedReader, read_some};
use crate::file::SharedFile;

/// The first bytes of a stream.
pub(super) const MAGIC: [u8; 6] = *b"\xfd7zXZ\0";
/// The last bytes of a stream.
const END_MAGIC: [u8; 2] = *b"YZ";
/// Bytes of a stream's header, and of its footer.
const HEADER_LEN: u64 = 12;
/// The maximum number of streams, and of blocks in all of them: 24 TiB in the blocks of `xz -T0`. They take 56 MiB at most
/// while the indexes are read.
const STREAMS_MAX: usize = 1 << 18;
const BLOCKS_MAX: usize = 1 << 20;

/// The ends that make a block a stream of its own: a stream's header before it; an index of one block, and a footer,
/// after it.
#[derive(Debug, Default)]
pub(super) struct BlockEnds {
    pub before: Vec<u8>,
    pub after: Vec<u8>,
}

/// The stream parameters that each block needs to be decoded as a stream of its own.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Each stream's offset in the file, and its flags, which give the kind of checksum.
    flags: Vec<(u64, [u8; 2])>,
    /// The bytes of padding in each block that has content.
    paddings: Vec<u8>,
}

struct Stream {
    flags: [u8; 2],
    start: u64,
    /// The unpadded size, and the size of the content, of each block.
    blocks: Vec<(u64, u64)>,
}

/// Returns the blocks of an xz file, from the indexes.
///
/// # Errors
///
/// `Kind::Evidence` if the file is damaged, or its end is missing.
pub(super) fn index(file: &SharedFile) -> Result<(Frames, Streams)> {
    let wrong = |why: &str| {
        Error::evidence(format!(
            "{}: {why}, so its end is missing or damaged; copy it again, or save what can be decompressed with xz -dc",
            file.name()
        ))
    };
    let (mut streams, mut blocks) = (Vec::new(), 0);
    let mut end = file.len();
    while end > 0 {
        let padding = read_some(&**file, end.saturating_sub(4), 4)?;
        if padding == [0; 4][..] && !streams_begin_at(end) {
            end -= 4;
            continue;
        }
        if streams.len() >= STREAMS_MAX {
            return Err(Error::failed(format!("{}: it has more than {STREAMS_MAX} streams", file.name())));
        }
        let stream = read_stream(file, end, BLOCKS_MAX - blocks).map_err(|why| match why {
            Why::Wrong(why) => wrong(why),
            Why::Failed(error) => error,
        })?;
        end = stream.start;
        blocks += stream.blocks.len();
        streams.push(stream);
    }
    let (mut frames, mut kinds) = (Frames::default(), Streams::default());
    for stream in streams.into_iter().rev() {
        kinds.flags.push((stream.start, stream.flags));
        let mut at = stream.start + HEADER_LEN;
        for (unpadded, content_len) in stream.blocks {
            let len = unpadded.next_multiple_of(4);
            frames.push(ByteRange::new(at, len), content_len).ok_or_else(|| wrong("its index is too large"))?;
            if content_len > 0 {
                kinds.paddings.push((len - unpadded) as u8);
            }
            at += len;
        }
    }
    Ok((frames, kinds))
}

/// Whether a file that ends at `end` cannot end with padding, being too short for a stream before it.
fn streams_begin_at(end: u64) -> bool {
    end <= 2 * HEADER_LEN
}

enum Why {
    Wrong(&'static str),
    Failed(Error),
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Reads the index of the stream that ends at `end`.
fn read_stream(file: &SharedFile, end: u64, blocks_max: usize) -> std::result::Result<Stream, Why> {
    let footer_at = end.checked_sub(2 * HEADER_LEN).ok_or(Why::Wrong("it is too short"))? + HEADER_LEN;
    let footer = read_some(&**file, footer_at, HEADER_LEN)?;
    let (flags, index_len) =
        parse_footer(&footer).ok_or(Why::Wrong("it does not end with a footer of the xz format"))?;
    let index_at = footer_at.checked_sub(index_len).ok_or(Why::Wrong("its index is cut off"))?;
    let range = ByteRange::new(index_at, index_len);
    let blocks = read_index(file, range, blocks_max).map_err(|error| {
        let failed = error.get_ref().and_then(|error| error.downcast_ref::<cheetah_device::Error>()).cloned();
        failed.map_or(Why::Wrong("its index is damaged"), |error| {
            Why::Failed(Error::device(format!("reading {}", file.name()))(error))
        })
    })?;
    let blocks_len = blocks.iter().try_fold(0u64, |sum, (unpadded, _)| sum.checked_add(unpadded.next_multiple_of(4)));
    let start = blocks_len.and_then(|len| index_at.checked_sub(len)?.checked_sub(HEADER_LEN));
    let start = start.ok_or(Why::Wrong("its index names more blocks than the file has"))?;
    let header = read_some(&**file, start, HEADER_LEN)?;
    if header[..] != stream_header(flags) {
        return Err(Why::Wrong("its index does not lead to the beginning of a stream"));
    }
    Ok(Stream { flags, start, blocks })
}

/// Returns the flags and the length of the index; `None` if this is not a footer.
fn parse_footer(footer: &[u8]) -> Option<([u8; 2], u64)> {
    let (crc, rest) = footer.split_first_chunk::<4>()?;
    let (len, flags) = rest.split_first_chunk::<4>()?;
    let &[flags_1, flags_2, magic_1, magic_2] = flags else { return None };
    let is_footer = [magic_1, magic_2] == END_MAGIC && crc32(&rest[..6]) == u32::from_le_bytes(*crc);
    // The other bits are reserved.
    let is_known = flags_1 == 0 && flags_2 & 0xf0 == 0;
    (is_footer && is_known).then(|| ([flags_1, flags_2], (u64::from(u32::from_le_bytes(*len)) + 1) * 4))
}

fn read_index(file: &SharedFile, range: ByteRange, blocks_max: usize) -> std::io::Result<Vec<(u64, u64)>> {
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let content = ByteRange::new(range.offset, range.len.checked_sub(4).ok_or_else(invalid)?);
    let mut index = Summed { inner: PackedReader::new(file, content), crc: Crc::new() };
    if index.byte()? != 0 {
        return Err(invalid());
    }
    let count = index.number()?;
    let mut blocks = Vec::new();
    for _ in 0..count {
        let (unpadded, content_len) = (index.number()?, index.number()?);
        // Leaves room for rounding up.
        if !(5..=u64::MAX >> 2).contains(&unpadded) {
            return Err(invalid());
        }
        if blocks.len() >= blocks_max {
            return Err(std::io::Error::other(cheetah_device::Error::Invalid(
                format!("it has more than {BLOCKS_MAX} blocks; compress it again in larger ones").into(),
            )));
        }
        blocks.push((unpadded, content_len));
    }
    while index.inner.left() > 0 {
        // Padding.
        if index.byte()? != 0 {
            return Err(invalid());
        }
    }
    let mut stored = [0; 4];
    PackedReader::new(file, ByteRange::new(content.end(), 4)).read_exact(&mut stored)?;
    if index.crc.sum() == u32::from_le_bytes(stored) { Ok(blocks) } else { Err(invalid()) }
}

/// The bytes of an index, and their CRC-32.
struct Summed {
    inner: PackedReader,
    crc: Crc,
}

impl Summed {
    fn byte(&mut self) -> std::io::Result<u8> {
        let mut byte = [0];
        self.inner.read_exact(&mut byte)?;
        self.crc.update(&byte);
        Ok(byte[0])
    }

    /// Reads a number of variable length: seven bits in each byte, at most nine bytes.
    fn number(&mut self) -> std::io::Result<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(std::io::ErrorKind::InvalidData.into())
    }
}

impl Streams {
    /// Returns the ends for a block.
    pub fn ends(&self, block: Frame) -> BlockEnds {
        let stream = self.flags.partition_point(|(start, _)| *start <= block.packed.offset).saturating_sub(1);
        let flags = self.flags.get(stream).map_or([0; 2], |(_, flags)| *flags);
        let mut index = vec![0, 1];
        let padding = self.paddings.get(block.number).copied().unwrap_or_default();
        push_number(&mut index, block.packed.len - u64::from(padding));
        push_number(&mut index, block.content.len);
        index.resize(index.len().next_multiple_of(4), 0);
        index.extend(crc32(&index).to_le_bytes());
        // An index of one block has at most 28 bytes.
        let mut end = (index.len() as u32 / 4 - 1).to_le_bytes().to_vec();
        end.extend(flags);
        let mut after = index;
        after.extend(crc32(&end).to_le_bytes());
        after.extend(end);
        after.extend(END_MAGIC);
        BlockEnds { before: stream_header(flags).to_vec(), after }
    }
}

fn stream_header(flags: [u8; 2]) -> [u8; HEADER_LEN as usize] {
    let mut header = [0; HEADER_LEN as usize];
    header[..6].copy_from_slice(&MAGIC);
    header[6..8].copy_from_slice(&flags);
    header[8..].copy_from_slice(&crc32(&flags).to_le_bytes());
    header
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}
