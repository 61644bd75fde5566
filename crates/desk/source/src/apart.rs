//! The names of several sources that are read together.

use cheetah_device::DynDevice;

/// Gives sources names that differ: of two with one name, the second one has its number behind it, counted from the source beside
/// which they are.
pub(crate) fn named_apart<'a>(others: impl Iterator<Item = (&'a str, &'a DynDevice)>) -> Vec<(String, DynDevice)> {
    let mut named = Vec::<(String, DynDevice)>::new();
    for (number, (name, device)) in (2..).zip(others) {
        let is_taken = named.iter().any(|(taken, _)| taken == name);
        let name = if is_taken { format!("{name}_{number}") } else { name.to_owned() };
        named.push((name, DynDevice::clone(device)));
    }
    named
}
