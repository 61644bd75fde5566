//! The concatenation of several devices.

use crate::Result;
use crate::device::DynDevice;
use crate::placement::Layout;
use crate::spread::{Spread, device_is_its_spread};

/// A concatenation of children.
pub struct Linear(Spread);

impl Linear {
    /// Concatenates `children`, of any sizes, in this order. Fails if there are none.
    pub fn new(children: Vec<DynDevice>) -> Result<Self> {
        Spread::new(Layout::Linear, children).map(Self)
    }
}

device_is_its_spread!(Linear);
