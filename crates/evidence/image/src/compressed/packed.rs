//! The bytes of a compressed file.

use std::io::{BufRead, Read, Result as IoResult};

use bytes::{Buf as _, Bytes};
use cheetah_device::ByteRange;
use cheetah_error::{Error, Result};
use sha2::{Digest as _, Sha256};

use crate::file::{ImageFile, SharedFile};

/// The number of bytes that a reader requests at a time.
const READ_BYTES: u64 = 256 << 10;

/// Reads at most `len` bytes at `offset`; fewer at the end of the file.
pub(super) fn read_some(file: &dyn ImageFile, offset: u64, len: u64) -> Result<Bytes> {
    let range = ByteRange::new(offset, len).intersection(ByteRange::new(0, file.len())).unwrap_or_default();
    file.read(range).map_err(Error::device(format!("reading {}", file.name())))
}

/// Reads a range of the file in order.
pub(super) struct PackedReader {
    file: SharedFile,
    /// The bytes read and not yet consumed.
    ready: Bytes,
    /// The offset after them.
    next: u64,
    end: u64,
    hash: Option<Sha256>,
}

impl PackedReader {
    /// Returns the reader of a range of `file`.
    pub fn new(file: &SharedFile, range: ByteRange) -> Self {
        Self { file: file.clone(), ready: Bytes::new(), next: range.offset, end: range.end(), hash: None }
    }

    /// Returns the reader of the whole file, which computes its SHA-256.
    pub fn hashing(file: &SharedFile) -> Self {
        Self { hash: Some(Sha256::new()), ..Self::new(file, ByteRange::new(0, file.len())) }
    }

    /// Takes the reader out of `place`, leaving an empty one.
    pub fn take(place: &mut Self) -> Self {
        let empty = Self::new(&place.file, ByteRange::default());
        std::mem::replace(place, empty)
    }

    /// The offset in the file of the next byte.
    pub fn offset(&self) -> u64 {
        self.next - self.ready.len() as u64
    }

    /// The bytes left in the range.
    pub fn left(&self) -> u64 {
        self.end - self.offset()
    }

    /// Consumes the next bytes, or all that are left.
    pub fn skip(&mut self, mut bytes: u64) -> IoResult<()> {
        while bytes > 0 {
            let ready = self.fill_buf()?.len();
            if ready == 0 {
                break;
            }
            let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(ready);
            self.consume(here);
            bytes -= here as u64;
        }
        Ok(())
    }

    /// Returns the next bytes without consuming them: up to `len`, fewer at the end of the range.
    pub fn peek(&mut self, len: u64) -> IoResult<Bytes> {
        let range = ByteRange::new(self.offset(), len.min(self.left()));
        self.file.read(range).map_err(std::io::Error::other)
    }

    /// Returns the hash of all bytes, in hexadecimal digits, if it was requested and all bytes were consumed.
    pub fn sha256(self) -> Option<String> {
        let hash = self.hash.filter(|_| self.next == self.end)?;
        Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Read for PackedReader {
    fn read(&mut self, buf: &mut [u8]) -> IoResult<usize> {
        let ready = self.fill_buf()?;
        let len = ready.len().min(buf.len());
        buf[..len].copy_from_slice(&ready[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for PackedReader {
    fn fill_buf(&mut self) -> IoResult<&[u8]> {
        if self.ready.is_empty() && self.next < self.end {
            let range = ByteRange::new(self.next, READ_BYTES.min(self.end - self.next));
            self.ready = self.file.read(range).map_err(std::io::Error::other)?;
            self.next = range.end();
            if let Some(hash) = &mut self.hash {
                hash.update(&self.ready);
            }
        }
        Ok(&self.ready)
    }

    fn consume(&mut self, amount: usize) {
        self.ready.advance(amount);
    }
}
