//! A layer that stops writing once the write lease is lost.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io, Result, Zeroing};

use crate::lease::Fence;

/// Passes everything through while the lease holds; reads for ever.
pub(crate) struct Fenced {
    inner: DynDevice,
    fence: Arc<Fence>,
    drive: Arc<str>,
}

impl Fenced {
    /// `inner` behind `fence`; `drive` is what errors call it.
    pub fn new(inner: DynDevice, fence: Arc<Fence>, drive: impl Into<Arc<str>>) -> Self {
        Self { inner, fence, drive: drive.into() }
    }

    fn pass(&self) -> Result<()> {
        if !self.fence.is_up() {
            return Ok(());
        }
        let why = format!("the lease on {} was lost to another writer; close it and open it anew", self.drive);
        Err(Error::Fenced(why.into()))
    }

    fn guarded<'a>(&'a self, operation: impl FnOnce() -> Io<'a, ()>) -> Io<'a, ()> {
        match self.pass() {
            Ok(()) => operation(),
            Err(error) => Io::fail(error),
        }
    }
}

impl Device for Fenced {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.inner.read(range)
    }
    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        self.guarded(|| self.inner.write(offset, data, fua))
    }
    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.guarded(|| self.inner.zero(range, how))
    }
    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        self.guarded(|| self.inner.trim(range))
    }
    fn flush(&self) -> Io<'_, ()> {
        self.guarded(|| self.inner.flush())
    }
    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.inner.cache(range)
    }
    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        self.inner.extents(range)
    }
}
