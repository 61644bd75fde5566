//! The placeholder for a lost node.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};

/// A device in place of a lost node's export: it has the export's size, and fails every read with the reason.
pub(crate) struct LostNode {
    device: Arc<str>,
    size: u64,
    why: Arc<str>,
}

impl LostNode {
    /// A placeholder for `size` bytes of `device`, which is lost because of `why`.
    pub fn new(device: impl Into<Arc<str>>, size: u64, why: impl Into<Arc<str>>) -> Self {
        Self { device: device.into(), size, why: why.into() }
    }
}

impl Device for LostNode {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let lost = Error::Lost { device: self.device.clone(), range, why: self.why.clone() };
        Io::done(self.check(range).and(if range.is_empty() { Ok(Data::new()) } else { Err(lost) }))
    }
}
