//! Writing without storing zeros.

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device as _, DynDevice, Io, Zeroing};
use futures::future::try_join_all;

use crate::copy::zero_runs;

/// A layer that turns writes of zeros into zeroing, for which a node needs no memory.
pub(super) struct SparseWrites(DynDevice);

impl SparseWrites {
    pub(super) fn new(inner: DynDevice) -> Self {
        Self(inner)
    }
}

impl Layer for SparseWrites {
    type Below = DynDevice;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::Handled;

    fn below(&self) -> &DynDevice {
        &self.0
    }

    fn on_write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
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

    fn on_zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.0.zero(range, how)
    }

    fn on_trim(&self, range: ByteRange) -> Io<'_, ()> {
        self.0.trim(range)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cheetah_device::layer::conformance::{Operation, assert_hands_on};

    use super::*;

    #[tokio::test]
    async fn everything_is_handed_on_but_memory_in_which_zeros_would_not_be_seen() {
        assert_hands_on(|below| Arc::new(SparseWrites::new(below)), &[&[Operation::LendMut]]).await;
    }
}
