//! A layer that stops writing once the write lease is lost.

use std::sync::Arc;

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{DynDevice, Error, Result};

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
}

impl Layer for Fenced {
    type Below = DynDevice;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::PassThrough;

    fn below(&self) -> &DynDevice {
        &self.inner
    }

    fn may_write(&self) -> Result<()> {
        if !self.fence.is_up() {
            return Ok(());
        }
        let why = format!("the lease on {} was lost to another writer; close it and open it anew", self.drive);
        Err(Error::Fenced(why.into()))
    }
}
