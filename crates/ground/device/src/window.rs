//! A part of a device: a partition, or a drive without the padding of its layout.

use crate::device::DynDevice;
use crate::{ByteRange, Data, Device, Error, Extent, Fill, Geometry, Io, Result, Zeroing};

/// A range of another device.
pub struct Window {
    inner: DynDevice,
    range: ByteRange,
}

impl Window {
    /// Makes a device of `range` of `inner`. Fails unless the range lies within it.
    pub fn new(inner: DynDevice, range: ByteRange) -> Result<Self> {
        inner.check(range)?;
        Ok(Self { inner, range })
    }

    /// Runs `operation` on the inner device, with `range` translated.
    fn on_inner<'a, T>(
        &'a self,
        range: ByteRange,
        operation: impl FnOnce(&'a DynDevice, ByteRange) -> Io<'a, T>,
    ) -> Io<'a, T> {
        match self.check(range) {
            Ok(()) => operation(&self.inner, range.shifted(self.range.offset)),
            Err(error) => Io::fail(error),
        }
    }
}

impl Device for Window {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.range.len, ..self.inner.geometry() }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.on_inner(range, |inner, range| inner.read(range))
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        if !self.geometry().writable {
            return Io::fail(Error::ReadOnly);
        }
        self.on_inner(ByteRange::new(offset, data.len()), |inner, range| inner.write(range.offset, data, fua))
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.on_inner(range, |inner, range| inner.zero(range, how))
    }

    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        self.on_inner(range, |inner, range| inner.trim(range))
    }

    fn flush(&self) -> Io<'_, ()> {
        self.inner.flush()
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.on_inner(range, |inner, range| inner.cache(range))
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        self.on_inner(range, |inner, range| inner.extents(range))
    }

    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        match self.check(range) {
            Ok(()) => self.inner.lend(range.shifted(self.range.offset), show),
            Err(error) => Some(Err(error)),
        }
    }

    fn lend_mut(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<Result<()>> {
        match self.check(range) {
            Ok(()) => self.inner.lend_mut(range.shifted(self.range.offset), fill),
            Err(error) => Some(Err(error)),
        }
    }

    fn take_prefetched(&self, range: ByteRange) -> Vec<(u64, Data)> {
        if self.check(range).is_err() {
            return Vec::new();
        }
        let prefetched = self.inner.take_prefetched(range.shifted(self.range.offset));
        let inside = |(offset, data): &(u64, Data)| self.range.contains(ByteRange::new(*offset, data.len()));
        prefetched.into_iter().filter(inside).map(|(offset, data)| (offset - self.range.offset, data)).collect()
    }

    fn answers_at_once(&self) -> bool {
        self.inner.answers_at_once()
    }
}
