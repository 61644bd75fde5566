//! The trait every device implements.
//!
//! # The contract, and the tests that hold it
//!
//! | rule | tests |
//! |---|---|
//! | A byte is right or the read is an error | `tests/it/model.rs` (every stack against plain memory; `a_lost_child_fails_the_ranges_that_touch_it`), `tests/it/prefetch.rs` (`every_byte_read_was_there_during_the_read`), `cache/tests.rs` (`bytes_are_right_and_cross_the_link_once`), `copy_on_read/tests.rs` |
//! | Content that must not be read is handed out in no way | `tests/it/layers.rs` (`content_that_may_not_be_read_is_handed_out_in_no_way`), `coverage_filter.rs` |
//! | Any offset, any length; bounds are checked | `tests/it/model.rs` (`a_range_past_the_end_is_refused_by_every_layer`), `tests/it/prefetch.rs` |
//! | A finished operation is seen by all that start later | `tests/it/prefetch.rs` (the same), `tests/it/model.rs` (`overlay_writers_side_by_side_do_not_disturb_each_other`) |
//! | A dropped future leaves the device usable | `overlay.rs` (`a_dropped_write_is_finished_before_the_next_change_begins`), `cache/tests.rs` (`a_read_that_is_never_polled_blocks_no_other`) |
//! | A read-only device refuses every change | `tests/it/model.rs` (`a_read_only_device_refuses_every_change`) |
//! | A layer hands on every operation it does not handle, and is not bypassed in those it does | `tests/it/layers.rs`; with [`conformance`](crate::layer::conformance) also the wrappers of the other crates |

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::{ByteRange, Data, Io};

/// A device shared by its users.
pub type DynDevice = Arc<dyn Device>;

/// Overwrites lent memory from the first byte on, and returns how many bytes it wrote ([`Device::lend_mut`]).
pub type Fill<'a> = dyn FnMut(&mut [&mut [u8]]) -> usize + 'a;

/// Anything with a size that can be read at an offset, and perhaps written.
///
/// The contract ([tests](self)):
///
/// * **A byte is right or the read is an error.** A device never makes up bytes it does not have. A read that fails in
///   part fails as a whole; a caller that wants the good part asks again for less.
/// * **Any offset, any length.** Devices take unaligned ranges; [`Geometry::block_preferred`] says what is efficient. A
///   range of length 0 succeeds and does nothing.
/// * **Concurrent.** Operations may overlap in time and finish in any order. The effect of a finished operation is
///   visible to every operation that starts later, through any clone of the handle. A read that overlaps a write in
///   flight returns the old or the new content, byte by byte.
/// * **A dropped future** may or may not have taken effect; it leaves the device usable.
/// * **Errors are final.** A device that can retry has done so. Bounds are checked by the device that is asked
///   ([`Device::check`]).
///
/// The defaults are those of a plain read-only source. A device over another one of the same content implements
/// [`Layer`](crate::layer::Layer) instead, and hands on every operation it does not handle.
pub trait Device: Send + Sync {
    /// Returns the size and preferences. Constant for the life of the handle, and cheap.
    fn geometry(&self) -> Geometry;

    /// Reads the range.
    fn read(&self, range: ByteRange) -> Io<'_, Data>;

    /// Writes `data` at `offset`. With `fua` (force unit access) it is on stable storage when this finishes, otherwise
    /// after the next [`flush`](Device::flush).
    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let _ = (offset, data, fua);
        Io::fail(Error::ReadOnly)
    }

    /// Makes the range read as zeros.
    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.write(range.offset, Data::zeros(range.len), how.fua)
    }

    /// Discards the range's content. Until the range is written again, it reads as the device chooses.
    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        let _ = range;
        if self.geometry().writable { Io::ok(()) } else { Io::fail(Error::ReadOnly) }
    }

    /// Finishes when every write that had finished before is on stable storage.
    fn flush(&self) -> Io<'_, ()> {
        Io::ok(())
    }

    /// Hints that the range will be read soon. May finish before anything has been fetched.
    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        let _ = range;
        Io::ok(())
    }

    /// Returns the allocation of the range: extents in order that cover exactly the range.
    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        Io::ok(vec![Extent::data(range.len)])
    }

    /// Shows the range in the device's own memory, without a copy: calls `show` once with the runs of bytes that make
    /// it up. They do not change until `show` returns, so it must not wait for anything. Returns `None`, and shows
    /// nothing, where the range is not in memory; it can still be read.
    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        let _ = (range, show);
        None
    }

    /// Lends the range in the device's own memory to be overwritten, without a copy: calls `fill` once with the runs of bytes
    /// that make it up. `fill` overwrites them from the first byte on, returns how many bytes it wrote, and must not wait for
    /// anything. If these are no whole number of [`Geometry::block_preferred`], the block that was written in part cannot be
    /// read until it is written again. Returns `None`, and calls nothing, where no memory is lent for that range; it can still
    /// be written.
    fn lend_mut(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<Result<()>> {
        let _ = (range, fill);
        None
    }

    /// Already prefetched data predicted to follow `range`, by offset; marks it consumed. Only what a reader's own
    /// cache would not request in time: a kernel reads ahead forwards, but neither backwards nor in strides.
    fn take_prefetched(&self, range: ByteRange) -> Vec<(u64, Data)> {
        let _ = range;
        Vec::new()
    }

    /// Whether reads and writes are finished when they return ([`Io::Done`]), as in memory. A server then reads a large
    /// range in pieces, since nothing is gained by requesting all of it at once.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Fails with [`Error::OutOfBounds`] unless the range lies within the device.
    fn check(&self, range: ByteRange) -> Result<()> {
        let size = self.geometry().size;
        if range.fits(size) { Ok(()) } else { Err(Error::OutOfBounds { range, size }) }
    }
}

/// The size and preferences of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The size in bytes.
    pub size: u64,
    /// Whether writes are accepted at all.
    pub writable: bool,
    /// The size and alignment of requests below which the device does more work than is asked for. A power of two; a
    /// hint.
    pub block_preferred: u32,
}

/// How a range is to be zeroed (NBD_CMD_WRITE_ZEROES).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// Keep the space allocated (NBD_CMD_FLAG_NO_HOLE).
    pub keep_allocated: bool,
    /// Fail with [`Error::Unsupported`] rather than write zeros one by one (NBD_CMD_FLAG_FAST_ZERO).
    pub fast_only: bool,
    /// Finish only when the zeros are on stable storage.
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
