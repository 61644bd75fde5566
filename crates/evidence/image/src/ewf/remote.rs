//! Segments on another machine.

use std::collections::VecDeque;
use std::io::{Error as IoError, Result as IoResult};
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::ByteRange;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::segments::Segments;
use crate::hashed::HashedFiles;
use crate::open_behind::FileBehind;
use crate::unpack::Blocking;

/// Reads of less are widened to blocks of this size: parsers read descriptors of some bytes, one behind the other.
const BLOCK_BYTES: u64 = 64 << 10;
/// The number of blocks that are kept.
const BLOCKS_MAX: usize = 8;

/// Segments that are read through devices.
pub(super) struct Remote {
    segments: Vec<FileBehind>,
    missing: String,
    hashed: Option<Arc<HashedFiles>>,
    runtime: Handle,
    /// Blocks that were read: segment, offset and content, the most recent last.
    blocks: Mutex<VecDeque<(usize, u64, Bytes)>>,
}

impl Remote {
    /// Must be called within a runtime.
    pub(super) fn new(segments: Vec<FileBehind>, missing: String, hashed: Option<Arc<HashedFiles>>) -> Self {
        Self { segments, missing, hashed, runtime: Handle::current(), blocks: Mutex::default() }
    }

    fn fetch(&self, segment: usize, range: ByteRange) -> IoResult<Bytes> {
        let device = &self.segments[segment].1;
        let read = self.runtime.block_on(async { device.read(range).await });
        let bytes = read.map(cheetah_device::Data::into_bytes).map_err(IoError::other)?;
        if let Some(hashed) = &self.hashed {
            hashed.note(segment, range.offset, &bytes, &self.runtime);
        }
        Ok(bytes)
    }

    fn block(&self, segment: usize, offset: u64) -> IoResult<Bytes> {
        let kept = |(of, at, _): &&(usize, u64, Bytes)| (*of, *at) == (segment, offset);
        if let Some((_, _, bytes)) = self.blocks.lock().iter().find(kept) {
            return Ok(bytes.clone());
        }
        let end = (offset + BLOCK_BYTES).min(self.len(segment));
        let bytes = self.fetch(segment, ByteRange::between(offset, end))?;
        let mut blocks = self.blocks.lock();
        blocks.push_back((segment, offset, bytes.clone()));
        if blocks.len() > BLOCKS_MAX {
            blocks.pop_front();
        }
        Ok(bytes)
    }
}

impl Segments for Remote {
    fn count(&self) -> usize {
        self.segments.len()
    }

    fn name(&self, segment: usize) -> String {
        self.segments.get(segment).map_or_else(|| self.missing.clone(), |(location, _)| location.clone())
    }

    fn len(&self, segment: usize) -> u64 {
        self.segments[segment].1.geometry().size
    }

    fn read(&self, segment: usize, offset: u64, buf: &mut [u8], blocking: Blocking) -> IoResult<bool> {
        if matches!(blocking, Blocking::Refused) {
            return Ok(false);
        }
        let range = ByteRange::new(offset, buf.len() as u64);
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        if range.end() > start + BLOCK_BYTES || range.end() > self.len(segment) {
            buf.copy_from_slice(&self.fetch(segment, range)?);
        } else {
            let block = self.block(segment, start)?;
            // Less than a block.
            let from = (offset - start) as usize;
            let found = block.get(from..from + buf.len());
            buf.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        }
        Ok(true)
    }
}
