//! The trait every layer implements.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::{ByteRange, Data, Io};

/// A device shared between whoever uses it.
pub type DynDevice = Arc<dyn Device>;

/// Anything with a size that can be read at an offset, and perhaps written.
///
/// The contract:
///
/// * **A byte is right or the read is an error.** A device never makes up bytes it does not have; a read that
///   fails in part fails as a whole, so a caller that wants the good part asks again for less.
/// * **Any offset, any length.** Devices take unaligned ranges; [`Geometry::block_preferred`] says what is
///   efficient. Ranges of length 0 succeed and do nothing.
/// * **Concurrent.** Operations may overlap in time and finish in any order. One that has finished is seen by
///   every one that starts later, from whichever clone of the handle. Overlapping reads and writes under way
///   at once give either content, byte by byte.
/// * **A dropped future** may or may not have taken effect; it leaves the device usable.
/// * **Errors are final.** A layer that can retry has done so. Bounds are checked by the layer that is asked
///   ([`Device::check`]).
pub trait Device: Send + Sync {
    /// Size and preferences. Constant for the life of the handle, and cheap.
    fn geometry(&self) -> Geometry;

    /// Reads the range.
    fn read(&self, range: ByteRange) -> Io<'_, Data>;

    /// Writes `data` at `offset`. With `fua` (force unit access) it is on stable storage when this finishes,
    /// otherwise only after the next [`flush`](Device::flush).
    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let _ = (offset, data, fua);
        Io::fail(Error::ReadOnly)
    }

    /// Makes the range read as zeros.
    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.write(range.offset, Data::zeros(range.len), how.fua)
    }

    /// Says that the range's content is of no use any more. What it reads as afterwards is the device's choice
    /// until it is written again.
    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        let _ = range;
        if self.geometry().writable { Io::ok(()) } else { Io::fail(Error::ReadOnly) }
    }

    /// Finishes when every write that had finished before is on stable storage.
    fn flush(&self) -> Io<'_, ()> {
        Io::ok(())
    }

    /// A hint: the range will be read soon. May finish before anything has been fetched.
    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        let _ = range;
        Io::ok(())
    }

    /// How the range is allocated: extents in order that cover exactly the range.
    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        Io::ok(vec![Extent::data(range.len)])
    }

    /// Shows the range where it lies, without copying it: calls `show` once with the runs of bytes that make it up.
    /// They stay as they are until it returns, so it must not wait for anything. `None`, and nothing shown, where
    /// the device has no such place for just this range; then it can still be read.
    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        let _ = (range, show);
        None
    }

    /// What whoever has just read `range` will probably read next, at which offsets: only what is at hand, and only
    /// where a reader's own cache would not ask for it in time. A kernel reads ahead forwards, but neither backwards nor
    /// in strides. What is handed out counts as read.
    fn upcoming(&self, range: ByteRange) -> Vec<(u64, Data)> {
        let _ = range;
        Vec::new()
    }

    /// Whether reads and writes are finished when they return ([`Io::Done`]), as in memory. A hint: a server then
    /// asks for a large range piece by piece, since nothing is gained by asking for all of it at once.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Fails with [`Error::OutOfBounds`] unless the range lies within the device.
    fn check(&self, range: ByteRange) -> Result<()> {
        let size = self.geometry().size;
        if range.fits(size) { Ok(()) } else { Err(Error::OutOfBounds { range, size }) }
    }
}

/// What a device is like. The block sizes are hints, not rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in the device.
    pub size: u64,
    /// Whether writes are accepted at all.
    pub writable: bool,
    /// The request size, and alignment, below which the device works more than it must. A power of two.
    pub block_preferred: u32,
}

/// How a range is to be zeroed (NBD_CMD_WRITE_ZEROES).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// Keep the space allocated (NBD_CMD_FLAG_NO_HOLE).
    pub keep_allocated: bool,
    /// Fail with [`Error::Unsupported`] rather than write zeros one by one (NBD_CMD_FLAG_FAST_ZERO).
    pub fast_only: bool,
    /// On stable storage when finished.
    pub fua: bool,
}

/// A run of bytes of one allocation state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes in the run.
    pub len: u64,
    /// Takes no space.
    pub hole: bool,
    /// Known to read as zeros.
    pub zero: bool,
}

impl Extent {
    /// `len` bytes that may hold anything.
    pub const fn data(len: u64) -> Self {
        Self { len, hole: false, zero: false }
    }

    /// `len` bytes that take no space and read as zeros.
    pub const fn hole(len: u64) -> Self {
        Self { len, hole: true, zero: true }
    }

    /// Appends to `extents`, merging with the last where the state is the same. Empty runs vanish.
    pub fn push(self, extents: &mut Vec<Self>) {
        match extents.last_mut() {
            _ if self.len == 0 => {}
            Some(last) if (last.hole, last.zero) == (self.hole, self.zero) => last.len += self.len,
            _ => extents.push(self),
        }
    }
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        (**self).read(range)
    }
    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        (**self).write(offset, data, fua)
    }
    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        (**self).zero(range, how)
    }
    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        (**self).trim(range)
    }
    fn flush(&self) -> Io<'_, ()> {
        (**self).flush()
    }
    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        (**self).cache(range)
    }
    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        (**self).extents(range)
    }
    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        (**self).lend(range, show)
    }
    fn upcoming(&self, range: ByteRange) -> Vec<(u64, Data)> {
        (**self).upcoming(range)
    }

    fn answers_at_once(&self) -> bool {
        (**self).answers_at_once()
    }
}
