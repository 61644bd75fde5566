//! Unpacking chunks.

use std::cell::RefCell;
use std::io::Read as _;

use bytes::Bytes;
use cheetah_device::data::is_zero;
use cheetah_device::{ByteRange, Data, Error as DeviceError, Result as DeviceResult};
use libdeflater::{Decompressor, adler32};

use super::segments::Segments;
use super::table::{ChunkLocation, Packing, io};
use crate::unpack::Blocking;

/// The number of packed bytes read at once from adjacent chunks.
const READ_MAX: u64 = 1 << 20;
/// The size of a thread's buffer for packed chunks.
const KEPT_MAX: usize = 2 << 20;

thread_local! {
    /// A thread's decompressor and buffer: making them costs more than unpacking a small chunk.
    static TOOLS: RefCell<Tools> = RefCell::new(Tools { inflate: Decompressor::new(), packed: Vec::new() });
}

struct Tools {
    inflate: Decompressor,
    packed: Vec<u8>,
}

/// Why a chunk cannot be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadChunk {
    /// It is packed without compression, and has fewer bytes than the chunk.
    #[error("it is cut short")]
    CutShort,
    /// It is packed without compression, and its bytes do not match its checksum.
    #[error("it does not match its checksum")]
    Checksum,
    /// It is no zlib stream.
    #[error("its zlib stream is damaged")]
    Zlib,
    /// It is no bzip2 stream.
    #[error("its bzip2 stream is damaged")]
    Bzip2,
    /// It unpacks to another number of bytes than the chunk has.
    #[error("it unpacks to {bytes} bytes, not {expected}")]
    Length { bytes: usize, expected: usize },
}

/// The geometry of an image's chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    /// The size of the image, in bytes.
    pub(super) size: u64,
    /// The size of a chunk, except the last.
    pub(super) chunk_size: u32,
}

impl Chunks {
    /// The range of the evidence in a chunk.
    pub(super) fn range(&self, chunk: u64) -> ByteRange {
        let start = chunk * u64::from(self.chunk_size);
        ByteRange::between(start, (start + u64::from(self.chunk_size)).min(self.size))
    }

    /// The chunks of a non-empty range.
    pub(super) fn holding(&self, range: ByteRange) -> std::ops::Range<u64> {
        range.offset / u64::from(self.chunk_size)..range.end().div_ceil(u64::from(self.chunk_size))
    }

    /// The maximum packed size of a chunk: deflate expands a byte to at most 9 bits, plus a header.
    fn packed_max(&self) -> u64 {
        u64::from(self.chunk_size) + u64::from(self.chunk_size) / 4 + 4096
    }

    /// Reads and unpacks chunks, passing each to `put`. False if that would block; chunks not passed on are unfinished.
    pub(super) fn unpack(
        &self,
        segments: &dyn Segments,
        located: &[ChunkLocation],
        blocking: Blocking,
        mut put: impl FnMut(u64, DeviceResult<Data>),
    ) -> bool {
        TOOLS.with_borrow_mut(|tools| {
            let mut rest = located;
            while !rest.is_empty() {
                let (run, len) = self.run(rest);
                let first = run[0];
                tools.packed.resize(len, 0);
                match segments.read(first.segment, first.offset, &mut tools.packed, blocking) {
                    Ok(false) => return false,
                    Ok(true) => {
                        for at in run {
                            // Within the run, so within the buffer.
                            let from = (at.offset - first.offset) as usize;
                            let packed = &tools.packed[from..from + self.len(at) as usize];
                            let unpacked = self.unpack_one(&mut tools.inflate, at, packed);
                            put(at.chunk, unpacked.map_err(|why| self.corrupt(segments, at, why)));
                        }
                    }
                    Err(error) => {
                        let error = io(segments, first.segment, first.offset, &error);
                        run.iter().for_each(|at| put(at.chunk, Err(error.clone())));
                    }
                }
                rest = &rest[run.len()..];
            }
            if tools.packed.capacity() > KEPT_MAX {
                tools.packed = Vec::new();
            }
            true
        })
    }

    /// The number of bytes to read for a chunk.
    fn len(&self, at: &ChunkLocation) -> u64 {
        match at.packing {
            Packing::Pattern(_) => 0,
            _ => at.len.min(self.packed_max()),
        }
    }

    /// The leading adjacent chunks, and their total size.
    fn run<'a>(&self, located: &'a [ChunkLocation]) -> (&'a [ChunkLocation], usize) {
        let first = &located[0];
        let (mut count, mut end) = (1, first.offset + self.len(first));
        for next in &located[1..] {
            let until = next.offset.saturating_add(self.len(next));
            if (next.segment, next.offset) != (first.segment, end) || until - first.offset > READ_MAX {
                break;
            }
            (count, end) = (count + 1, until);
        }
        // At most the larger of READ_MAX and a chunk.
        (&located[..count], (end - first.offset) as usize)
    }

    fn unpack_one(&self, inflate: &mut Decompressor, at: &ChunkLocation, packed: &[u8]) -> Result<Data, BadChunk> {
        // Chunks have at most some MiB.
        let (len, whole) = (self.range(at.chunk).len as usize, self.chunk_size as usize);
        let mut out = match at.packing {
            Packing::Pattern(pattern) => {
                if pattern == [0; 8] {
                    return Ok(Data::zeros(len as u64));
                }
                pattern.iter().copied().cycle().take(len).collect()
            }
            Packing::Plain => packed.get(..len).ok_or(BadChunk::CutShort)?.to_vec(),
            Packing::Summed => stored(packed, len, whole)?.to_vec(),
            Packing::Zlib => {
                let mut out = vec![0; whole];
                let got = inflate.zlib_decompress(packed, &mut out);
                exact(got.map_err(|_| BadChunk::Zlib)?, len, whole)?;
                out
            }
            Packing::Bzip2 => {
                let mut out = Vec::with_capacity(whole + 1);
                let got = bzip2::read::BzDecoder::new(packed).take(whole as u64 + 1).read_to_end(&mut out);
                exact(got.map_err(|_| BadChunk::Bzip2)?, len, whole)?;
                out
            }
        };
        out.truncate(len);
        Ok(if is_zero(&out) { Data::zeros(len as u64) } else { Bytes::from(out).into() })
    }

    fn corrupt(&self, segments: &dyn Segments, at: &ChunkLocation, why: BadChunk) -> DeviceError {
        let name = segments.name(at.segment);
        let device = format!("{name}, chunk {} at offset {} of the file ({why})", at.chunk, at.offset);
        DeviceError::Corrupt { device: device.into(), range: self.range(at.chunk) }
    }
}

/// Trims the last chunk, which may be padded.
fn exact(got: usize, len: usize, whole: usize) -> Result<(), BadChunk> {
    if got == len || got == whole { Ok(()) } else { Err(BadChunk::Length { bytes: got, expected: len }) }
}

/// The content of an uncompressed chunk, which its Adler-32 follows.
fn stored(packed: &[u8], len: usize, whole: usize) -> Result<&[u8], BadChunk> {
    let good = |len: usize| {
        let (content, sum) = packed.split_at_checked(len)?;
        (sum.first_chunk() == Some(&adler32(content).to_le_bytes())).then_some(content)
    };
    let found = good(len).or_else(|| if whole == len { None } else { good(whole) });
    found.ok_or(BadChunk::Checksum)
}
