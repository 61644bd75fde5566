//! Splitting evidence into chunks, and compressing them.

use cheetah_device::Data;
use cheetah_device::data::{Part, is_zero};
use libdeflater::{CompressionLvl, Compressor, adler32};

use super::options::Compression;
use super::sections::COMPRESSED;
use crate::os::FastZlib;
use cheetah_error::{Error, Result};

/// Packed chunks, back to back.
#[derive(Debug, Default)]
pub struct Packed {
    /// All of them.
    pub bytes: Vec<u8>,
    /// The length of each, with [`COMPRESSED`] set if compressed.
    pub lens: Vec<u32>,
}

/// The compression of chunks.
enum Method {
    /// None, except for chunks of zeros.
    Stored,
    Fast(FastZlib),
    Level(Compressor),
}

impl Method {
    /// Writes `bytes` to `out` as a zlib stream, and returns its length; `None` if `out` is too small.
    fn zlib(&mut self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        match self {
            Self::Stored => None,
            Self::Fast(zlib) => zlib.zlib(bytes, out),
            Self::Level(compressor) => compressor.zlib_compress(bytes, out).ok(),
        }
    }
}

/// A thread's chunk compressor.
pub struct Packer {
    chunk_bytes: usize,
    method: Method,
    /// A whole chunk of zeros, compressed.
    zeros: Vec<u8>,
    /// A buffer for chunks in several runs.
    scratch: Vec<u8>,
}

impl Packer {
    /// For chunks of `chunk_bytes`.
    pub fn new(chunk_bytes: usize, compression: Compression) -> Result<Self> {
        let method = match compression.level() {
            _ if compression == Compression::FAST => Method::Fast(FastZlib::new()),
            0 => Method::Stored,
            level => {
                let level = CompressionLvl::new(level.into()).map_err(|error| Error::misuse(format!("{error:?}")))?;
                Method::Level(Compressor::new(level))
            }
        };
        let mut packer = Self { chunk_bytes, method, zeros: Vec::new(), scratch: vec![0; chunk_bytes] };
        let mut zeros = vec![0; chunk_bytes];
        let len = Compressor::new(CompressionLvl::best())
            .zlib_compress(&packer.scratch, &mut zeros)
            .map_err(|error| Error::failed(format!("compressing zeros: {error}")))?;
        zeros.truncate(len);
        packer.zeros = zeros;
        Ok(packer)
    }

    /// Packs `data`, chunk by chunk, into `packed`, which is emptied first.
    pub fn pack(&mut self, data: &Data, packed: &mut Packed) {
        packed.bytes.clear();
        packed.lens.clear();
        let mut at = 0;
        while at < data.len() {
            let chunk = data.slice(at, self.chunk_bytes as u64);
            at += chunk.len();
            let before = packed.bytes.len();
            let compressed = self.pack_chunk(&chunk, &mut packed.bytes);
            // A chunk has less than 2 GiB, packed even less.
            let len = (packed.bytes.len() - before) as u32;
            packed.lens.push(if compressed { len | COMPRESSED } else { len });
        }
    }

    /// Appends one chunk; returns whether it is compressed.
    fn pack_chunk(&mut self, chunk: &Data, out: &mut Vec<u8>) -> bool {
        // Not truncated: at most a chunk.
        let len = chunk.len() as usize;
        let bytes = match chunk.parts() {
            [Part::Bytes(bytes)] => bytes,
            [Part::Zeros(_)] if len == self.chunk_bytes => {
                out.extend_from_slice(&self.zeros);
                return true;
            }
            _ => {
                chunk.copy_to(&mut self.scratch[..len]);
                &self.scratch[..len]
            }
        };
        if len == self.chunk_bytes && is_zero(bytes) {
            out.extend_from_slice(&self.zeros);
            return true;
        }
        let start = out.len();
        // Less room than the chunk itself: a chunk that does not shrink is stored.
        out.resize(start + len.saturating_sub(1), 0);
        if let Some(packed) = self.method.zlib(bytes, &mut out[start..]) {
            out.truncate(start + packed);
            return true;
        }
        out.truncate(start);
        out.extend_from_slice(bytes);
        out.extend_from_slice(&adler32(bytes).to_le_bytes());
        false
    }
}
