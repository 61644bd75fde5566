//! Where a look for volumes begins.

use cheetah_device::{ByteRange, DynDevice};
use cheetah_unlock::{Candidate, Place};
use cheetah_volume::partition::read_partitions;
use cheetah_volume::recognise::START_BYTES;

use crate::contents::Volume;

/// The length of a partition table at the start of a device.
const TABLE_BYTES: u64 = 20 << 10;

/// Where a look begins.
#[derive(Debug, Clone, Default)]
pub(crate) enum Start {
    /// Nowhere: nothing is looked for.
    #[default]
    Nowhere,
    /// At the source as a whole.
    Source,
    /// At the source and its partitions, which were examined.
    Examined(Vec<Candidate>),
    /// At the places that a partition table names.
    Named {
        /// Those that may be members of arrays.
        members: Vec<Place>,
        /// Those that may be physical volumes.
        physical: Vec<Place>,
        /// The others, in which file systems may have shadow copies.
        file_systems: Vec<Place>,
    },
}

impl Start {
    /// Leaves out what does not have to be looked at for shadow copies.
    pub(crate) fn for_copies(self) -> Self {
        match self {
            Self::Named { file_systems, .. } => Self::Named { members: Vec::new(), physical: Vec::new(), file_systems },
            other => other,
        }
    }

    /// Begins at volumes that were examined.
    pub(crate) fn examined(volumes: &[Volume]) -> Self {
        let candidate = |one: &Volume| Candidate {
            place: Place { partition: one.partition, range: one.range, ..Place::default() },
            content: one.content.clone(),
        };
        Self::Examined(volumes.iter().map(candidate).collect())
    }
}

/// Begins where the partition table of a device has its partitions, or at the whole of it if it has no table.
/// Reads the table, which tools read first, too.
pub(crate) async fn by_table(device: &DynDevice, sector_bytes: Option<u32>) -> Start {
    let size = device.geometry().size;
    // The entries of a GPT, at the same time: one behind the other would take a round trip more on a link.
    let entries = ByteRange::between(START_BYTES.min(size), TABLE_BYTES.min(size));
    let (partitions, _) = futures::join!(read_partitions(&**device, sector_bytes), device.read(entries));
    if partitions.is_empty() {
        let whole = vec![Place { range: ByteRange::new(0, size), ..Place::default() }];
        return Start::Named { members: whole.clone(), physical: whole.clone(), file_systems: whole };
    }
    let (mut members, mut physical, mut file_systems) = (Vec::new(), Vec::new(), Vec::new());
    for partition in partitions {
        let place = Place { partition: Some(partition.number), range: partition.range, ..Place::default() };
        if partition.is_for_lvm() {
            physical.push(place);
        } else if partition.is_for_linux_raid() {
            members.push(place);
        } else {
            file_systems.push(place);
        }
    }
    Start::Named { members, physical, file_systems }
}
