//! A striped device (RAID 0).

use crate::Result;
use crate::device::DynDevice;
use crate::placement::Layout;
use crate::spread::{Spread, device_is_its_spread};

/// Children that hold alternate stripe units.
pub struct Stripe(Spread);

impl Stripe {
    /// Stripes over `children` in units of `unit` bytes: a power of two from 4 KiB to 4 MiB. Where smaller children are
    /// full, the larger ones go on alone; bytes after a child's last whole unit are unused. Fails without children, and
    /// if one is smaller than a unit.
    pub fn new(unit: u64, children: Vec<DynDevice>) -> Result<Self> {
        Spread::new(Layout::Stripe { unit }, children).map(Self)
    }
}

device_is_its_spread!(Stripe);
