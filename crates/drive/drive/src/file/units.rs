//! The units of a sealed drive: how many bytes its content takes at the nodes.

use cheetah_device::Size;
use cheetah_error::{Error, Result};
use cheetah_seal::Units;
use cheetah_seal::units::UNITS_MAX;

/// The bytes that `size` bytes of content take in units of `unit` bytes.
pub(crate) fn sealed_bytes(unit: u64, size: u64) -> Result<u64> {
    Ok(units_of(unit, size)?.sealed_bytes())
}

/// The units of `size` bytes of content.
pub(crate) fn units_of(unit: u64, size: u64) -> Result<Units> {
    Units::new(unit, size).ok_or_else(|| {
        let size = Size(size);
        Error::misuse(format!(
            "content of {size} cannot be sealed with a unit of {unit} bytes: a unit has 4096 or 65536, and a drive has at most \
             {UNITS_MAX} units on this machine"
        ))
    })
}
