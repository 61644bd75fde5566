//! Children taking turns (RAID 0), as one device.

use crate::Result;
use crate::device::DynDevice;
use crate::placement::Layout;
use crate::spread::{Spread, device_is_its_spread};

/// Children taking turns, a unit each.
pub struct Stripe(Spread);

impl Stripe {
    /// Stripes over `children` in units of `unit` bytes: a power of two from 4 KiB to 4 MiB. Larger children go
    /// on without the smaller ones where those are full; whatever exceeds a child's last whole unit is unused.
    /// Fails without children and if one holds less than a unit.
    pub fn new(unit: u64, children: Vec<DynDevice>) -> Result<Self> {
        Spread::new(Layout::Stripe { unit }, children).map(Self)
    }
}

device_is_its_spread!(Stripe);
