//! A device that cannot be written, whatever is below.

use crate::device::DynDevice;
use crate::{ByteRange, Data, Device, Error, Extent, Geometry, Io, Zeroing};

/// Another device, with every way to change it refused.
pub struct ReadOnly {
    inner: DynDevice,
}

impl ReadOnly {
    /// `inner`, to be read only.
    pub fn new(inner: DynDevice) -> Self {
        Self { inner }
    }
}

impl Device for ReadOnly {
    fn geometry(&self) -> Geometry {
        Geometry { writable: false, ..self.inner.geometry() }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.inner.read(range)
    }

    // Refused here one by one rather than by the trait's defaults: this is the layer that protects evidence.
    fn write(&self, _offset: u64, _data: Data, _fua: bool) -> Io<'_, ()> {
        Io::fail(Error::ReadOnly)
    }

    fn zero(&self, _range: ByteRange, _how: Zeroing) -> Io<'_, ()> {
        Io::fail(Error::ReadOnly)
    }

    fn trim(&self, _range: ByteRange) -> Io<'_, ()> {
        Io::fail(Error::ReadOnly)
    }

    /// Nothing was written here, so there is nothing to flush.
    fn flush(&self) -> Io<'_, ()> {
        Io::ok(())
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.inner.cache(range)
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        self.inner.extents(range)
    }

    fn upcoming(&self, range: ByteRange) -> Vec<(u64, Data)> {
        self.inner.upcoming(range)
    }
}
