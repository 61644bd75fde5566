//! A device that cannot be written, even if the one below can.

use crate::DynDevice;
use crate::layer::{Layer, Reads, Writes};

/// Refuses every change to the device below. This is the layer that protects evidence.
pub struct ReadOnly {
    below: DynDevice,
}

impl ReadOnly {
    /// Makes `below` read-only.
    pub fn new(below: DynDevice) -> Self {
        Self { below }
    }
}

impl Layer for ReadOnly {
    type Below = DynDevice;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.below
    }
}
