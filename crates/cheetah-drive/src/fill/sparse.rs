//! Writing without storing zeros.

use cheetah_device::{ByteRange, Data, Device, DynDevice, Extent, Geometry, Io, Zeroing};
use futures::future::try_join_all;

use crate::copy::zero_runs;

/// A device to which runs of zeros are not written, but zeroed: a node then has nothing to keep.
pub(super) struct Sparse(DynDevice);

impl Sparse {
    pub(super) fn new(inner: DynDevice) -> Self {
        Self(inner)
    }
}

impl Device for Sparse {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.0.read(range)
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let runs = zero_runs(&data);
        if let [(_, false)] = runs[..] {
            return self.0.write(offset, data, fua);
        }
        let write = move |(within, zero): (ByteRange, bool)| {
            let target = within.shifted(offset);
            match zero {
                true => self.0.zero(target, Zeroing { fua, ..Zeroing::default() }),
                false => self.0.write(target.offset, data.slice(within.offset, within.len), fua),
            }
        };
        Io::later(async move { try_join_all(runs.into_iter().map(write)).await.map(drop) })
    }

    fn flush(&self) -> Io<'_, ()> {
        self.0.flush()
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        self.0.extents(range)
    }
}
