//! The fence: no writes once the write lease is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, DynDevice, Error, Result};

/// A flag that is raised when the write lease is lost.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    up: AtomicBool,
}

impl Fence {
    /// Whether the lease is lost to another writer.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self) {
        self.up.store(true, Ordering::Release);
    }
}

/// A layer that refuses writes once the fence is up. Reads pass, unless the content may have moved.
pub(crate) struct Fenced {
    inner: DynDevice,
    fence: Arc<Fence>,
    drive: Arc<str>,
    moves: bool,
}

impl Fenced {
    /// Puts `inner` behind `fence`; errors call it `drive`.
    pub fn new(inner: DynDevice, fence: Arc<Fence>, drive: impl Into<Arc<str>>) -> Self {
        Self { inner, fence, drive: drive.into(), moves: false }
    }

    /// Refuses reads as well: the new writer of a redundant drive may replace nodes that this process knows.
    pub fn refusing_reads(self) -> Self {
        Self { moves: true, ..self }
    }

    fn refusal(&self) -> Error {
        let why = format!("the lease on {} was lost to another writer; close it and open it again", self.drive);
        Error::Fenced(why.into())
    }
}

impl Layer for Fenced {
    type Below = DynDevice;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::PassThrough;

    fn below(&self) -> &DynDevice {
        &self.inner
    }

    fn may_read(&self, _: ByteRange) -> Result<()> {
        if self.moves && self.fence.is_up() { Err(self.refusal()) } else { Ok(()) }
    }

    fn may_write(&self) -> Result<()> {
        if self.fence.is_up() { Err(self.refusal()) } else { Ok(()) }
    }
}
