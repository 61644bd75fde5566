//! The names of several sources that are read together.

use cheetah_device::DynDevice;

/// Gives sources names that differ: of two with one name, the second one has its number behind it, counted from the source beside
/// which they are, or the next number that makes a new name.
pub(crate) fn named_apart<'a>(others: impl Iterator<Item = (&'a str, &'a DynDevice)>) -> Vec<(String, DynDevice)> {
    let mut named = Vec::<(String, DynDevice)>::new();
    for (number, (name, device)) in (2_u64..).zip(others) {
        let is_free = |new: &String| named.iter().all(|(taken, _)| taken != new);
        let mut names = std::iter::once(name.to_owned()).chain((number..).map(|number| format!("{name}_{number}")));
        // There is always one: the numbers do not end before the names do.
        let name = names.find(is_free).unwrap_or_default();
        named.push((name, DynDevice::clone(device)));
    }
    named
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cheetah_device::memory::Memory;

    use super::*;

    #[test]
    fn names_differ_also_from_those_that_have_a_number_already() {
        let device: DynDevice = Arc::new(Memory::new(vec![0; 512]));
        let named = |names: &[&str]| -> Vec<String> {
            named_apart(names.iter().map(|name| (*name, &device))).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(named(&["disk", "other", "disk"]), ["disk", "other", "disk_4"]);
        assert_eq!(named(&["disk_4", "disk", "disk"]), ["disk_4", "disk", "disk_5"]);
    }
}
