//! Where a volume lies, and its name.

use cheetah_device::ByteRange;

/// A volume of a device: the device as a whole, one of its partitions, a volume that was found in another, or a partition of such
/// a one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of its partition; `None` if it is no partition.
    pub partition: Option<u32>,
    /// The name of the volume that it is, or whose partition; empty for the device as a whole.
    pub inside: String,
    /// Where it lies.
    pub range: ByteRange,
}

impl Place {
    /// Its name: `p2`, `vg-home`, `md0.p1`; empty for the device as a whole.
    pub fn name(&self) -> String {
        name(&self.inside, self.partition)
    }
}

pub(crate) fn name(inside: &str, partition: Option<u32>) -> String {
    match (inside, partition) {
        (inside, None) => inside.to_owned(),
        ("", Some(number)) => format!("p{number}"),
        (inside, Some(number)) => format!("{inside}.p{number}"),
    }
}
