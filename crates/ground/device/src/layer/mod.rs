//! Layers: devices that hand on to the device below every operation they do not handle themselves.
//!
//! A type that implements [`Device`] itself and omits a method gets that method's default. If it has a device below it,
//! it thereby loses a capability silently. A type that implements [`Layer`] is a device too, and passes on every
//! operation, hint and capability that it does not handle.
//!
//! A layer has the size, the offsets and the content of the device below it. One that moves or changes bytes (a window,
//! a stripe, an overlay) is not a layer: it implements [`Device`], because its operations cannot be passed on
//! unchanged.

pub mod conformance;

use std::sync::Arc;

use crate::{ByteRange, Data, Device, Error, Extent, Fill, Geometry, Io, Result, Zeroing};

/// How a [`Layer`] answers reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// With the reads of the device below, where [`Layer::may_read`] allows them. The layer then passes on
    /// [`lend`](Device::lend) and [`answers_at_once`](Device::answers_at_once) as well.
    PassThrough,
    /// With [`Layer::on_read`]. Nothing is lent, and reads may have to wait, unless the layer says otherwise: content
    /// that is lent would bypass it.
    Handled,
}

/// How a [`Layer`] answers writes, zeroing and trimming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// It passes them on, where [`Layer::may_write`] allows them.
    PassThrough,
    /// With [`Layer::on_write`]; zeroing becomes a write of zeros, and trimming does nothing, unless the layer handles
    /// those as well. So no change can bypass it.
    Handled,
    /// With [`Error::ReadOnly`]. A flush has nothing to do.
    Refused,
}

/// A device over another of the same size and content. Implement this, and [`Device`] follows.
///
/// The capabilities that a layer hands on, and their conditions:
///
/// | operation | default |
/// |---|---|
/// | `geometry` | that below, not writable if writes are refused |
/// | `read`, `lend`, `answers_at_once` | as [`READS`](Layer::READS) says |
/// | `take_prefetched` | passed on, without the ranges that [`may_read`](Layer::may_read) refuses |
/// | `extents` | passed on; a range that [`may_read`](Layer::may_read) refuses is neither hole nor zeros |
/// | `write`, `zero`, `trim`, `flush` | as [`WRITES`](Layer::WRITES) says |
/// | `cache` | passed on |
pub trait Layer: Send + Sync {
    /// The type of the device below.
    type Below: Device + ?Sized;
    /// How reads are answered.
    const READS: Reads;
    /// How writes are answered.
    const WRITES: Writes;

    /// Returns the device below.
    fn below(&self) -> &Self::Below;

    /// Fails if the content of `range` must not be handed out in any way.
    fn may_read(&self, range: ByteRange) -> Result<()> {
        let _ = range;
        Ok(())
    }

    /// Fails if nothing may be written now. Asked before writes, zeroing, trimming and flushes that are passed on.
    fn may_write(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the geometry says that writes are accepted, where that of the device below says `below`.
    fn is_writable(&self, below: bool) -> bool {
        Self::WRITES != Writes::Refused && below
    }

    /// Answers a read, with [`Reads::Handled`].
    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        self.below().read(range)
    }

    /// Lends content, with [`Reads::Handled`].
    fn on_lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        let _ = (range, show);
        None
    }

    /// Whether reads and writes are finished when they return, with [`Reads::Handled`].
    fn on_answers_at_once(&self) -> bool {
        false
    }

    /// Answers a write, with [`Writes::Handled`].
    fn on_write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        self.below().write(offset, data, fua)
    }

    /// Lends memory to be overwritten, with [`Writes::Handled`].
    fn on_lend_mut(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<Result<()>> {
        let _ = (range, fill);
        None
    }

    /// Zeroes a range, with [`Writes::Handled`].
    fn on_zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.on_write(range.offset, Data::zeros(range.len), how.fua)
    }

    /// Trims a range, with [`Writes::Handled`].
    fn on_trim(&self, range: ByteRange) -> Io<'_, ()> {
        let _ = range;
        let below = self.below().geometry().writable;
        if self.is_writable(below) { Io::ok(()) } else { Io::fail(Error::ReadOnly) }
    }

    /// Takes a hint that the range will be read soon.
    fn on_cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.below().cache(range)
    }

    /// Returns the extents of a range.
    fn on_extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        match self.may_read(range) {
            Ok(()) => self.below().extents(range),
            // Not a hole: a reader that skips holes would take it for zeros.
            Err(_) => Io::ok(vec![Extent::data(range.len)]),
        }
    }

    /// Hands out prefetched data. The result is still subject to [`may_read`](Layer::may_read).
    fn on_take_prefetched(&self, range: ByteRange) -> Vec<(u64, Data)> {
        self.below().take_prefetched(range)
    }
}

/// Passes on a change, or refuses it.
fn change<'a, L: Layer>(
    layer: &'a L,
    pass: impl FnOnce(&'a L::Below) -> Io<'a, ()>,
    handle: impl FnOnce(&'a L) -> Io<'a, ()>,
) -> Io<'a, ()> {
    match L::WRITES {
        Writes::PassThrough => match layer.may_write() {
            Ok(()) => pass(layer.below()),
            Err(error) => Io::fail(error),
        },
        Writes::Handled => handle(layer),
        Writes::Refused => Io::fail(Error::ReadOnly),
    }
}

impl<L: Layer> Device for L {
    fn geometry(&self) -> Geometry {
        // Asked once: each layer of a stack that asked twice would double the questions to the lowest.
        let below = self.below().geometry();
        Geometry { writable: self.is_writable(below.writable), ..below }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match (self.may_read(range), L::READS) {
            (Err(error), _) => Io::fail(error),
            (Ok(()), Reads::PassThrough) => self.below().read(range),
            (Ok(()), Reads::Handled) => self.on_read(range),
        }
    }

    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        match (self.may_read(range), L::READS) {
            (Err(error), _) => Some(Err(error)),
            (Ok(()), Reads::PassThrough) => self.below().lend(range, show),
            (Ok(()), Reads::Handled) => self.on_lend(range, show),
        }
    }

    fn lend_mut(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<Result<()>> {
        match (L::WRITES, self.may_write()) {
            (Writes::PassThrough, Ok(())) => self.below().lend_mut(range, fill),
            (Writes::PassThrough, Err(error)) => Some(Err(error)),
            (Writes::Handled, _) => self.on_lend_mut(range, fill),
            (Writes::Refused, _) => Some(Err(Error::ReadOnly)),
        }
    }

    fn answers_at_once(&self) -> bool {
        match L::READS {
            Reads::PassThrough => self.below().answers_at_once(),
            Reads::Handled => self.on_answers_at_once(),
        }
    }

    fn take_prefetched(&self, range: ByteRange) -> Vec<(u64, Data)> {
        let mut prefetched = self.on_take_prefetched(range);
        prefetched.retain(|(offset, data)| self.may_read(ByteRange::new(*offset, data.len())).is_ok());
        prefetched
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        self.on_extents(range)
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.on_cache(range)
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        match L::WRITES {
            // Not through `change`: the data can be moved into one closure only.
            Writes::Handled => self.on_write(offset, data, fua),
            _ => change(self, |below| below.write(offset, data, fua), |_| Io::fail(Error::ReadOnly)),
        }
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        change(self, |below| below.zero(range, how), |layer| layer.on_zero(range, how))
    }

    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        change(self, |below| below.trim(range), |layer| layer.on_trim(range))
    }

    fn flush(&self) -> Io<'_, ()> {
        match L::WRITES {
            Writes::Refused => Io::ok(()),
            _ => change(self, |below| below.flush(), |layer| layer.below().flush()),
        }
    }
}

/// A shared device is the device.
impl<D: Device + ?Sized> Layer for Arc<D> {
    type Below = D;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::PassThrough;

    fn below(&self) -> &D {
        self
    }
}
