//! A device whose answers never arrive.

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Geometry, Io};

/// A read-only device in memory that answers only reads within its beginning. Any other read waits for ever, as one over a link that
/// lost its far end without a word does.
pub struct SilentDevice {
    inner: Memory,
    /// Where its silence begins, in bytes.
    from: u64,
}

impl SilentDevice {
    /// Returns a device with this content that answers reads that end at or before `from`, in bytes; none with 0.
    pub fn new(content: Vec<u8>, from: u64) -> Self {
        Self { inner: Memory::new(content), from }
    }
}

impl Device for SilentDevice {
    fn geometry(&self) -> Geometry {
        Geometry { writable: false, ..self.inner.geometry() }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match range.end() <= self.from {
            true => self.inner.read(range),
            false => Io::later(std::future::pending()),
        }
    }
}
