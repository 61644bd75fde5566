//! A device over plain memory: the reference model in tests, and the smallest example of a device.

use bytes::Bytes;
use parking_lot::RwLock;

use crate::{ByteRange, Data, Device, Fill, Geometry, Io, Result};

/// A writable device over a vector.
pub struct Memory {
    bytes: RwLock<Vec<u8>>,
}

impl Memory {
    /// A device holding `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes) }
    }

    /// Returns a copy of the content.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

fn indices(range: ByteRange) -> std::ops::Range<usize> {
    // Only called with ranges that were checked against a Vec's length.
    range.offset as usize..range.end() as usize
}

impl Device for Memory {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.bytes.read().len() as u64, writable: true, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::done(self.check(range).map(|()| Bytes::copy_from_slice(&self.bytes.read()[indices(range)]).into()))
    }

    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        Some(self.check(range).map(|()| show(&[&self.bytes.read()[indices(range)]])))
    }

    fn lend_mut(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<Result<()>> {
        Some(self.check(range).map(|()| {
            fill(&mut [&mut self.bytes.write()[indices(range)]]);
        }))
    }

    fn write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        Io::done(self.check(range).map(|()| data.copy_to(&mut self.bytes.write()[indices(range)])))
    }

    fn answers_at_once(&self) -> bool {
        true
    }
}
