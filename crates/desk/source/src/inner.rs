//! The volumes in a source, as they are looked for when it is opened.

use std::sync::Arc;

use cheetah_device::DynDevice;
use cheetah_drive::DriveFile;

use crate::access::Access;
use crate::contents::{Beginning, UnreadVolume};
use crate::stack::{How, Start, VolumeStack, by_table, find};

/// Other sources, with names that differ.
pub(crate) type Beside = [(String, DynDevice)];

/// The volumes of a drive, which is evidence unless it is written to.
pub(crate) async fn volumes_of_drive(
    device: &DynDevice,
    access: &Access,
    file: &DriveFile,
    beside: &Beside,
) -> Arc<VolumeStack> {
    let sector_bytes = file.image.as_ref().and_then(|image| image.sector_size);
    let start = match &access.unlock {
        Some(_) => Start::Source,
        None if !access.writable && file.image.is_some() => by_table(device, sector_bytes).await,
        None => Start::Nowhere,
    };
    volumes_in(device, u64::MAX, start, (access, sector_bytes), beside).await
}

/// The volumes that are found in a source. Without a key, only what can be read without much cost is looked at, up to `read_up_to`.
pub(crate) async fn volumes_in(
    device: &DynDevice,
    read_up_to: u64,
    start: Start,
    (access, sector_bytes): (&Access, Option<u32>),
    beside: &Beside,
) -> Arc<VolumeStack> {
    let device: DynDevice = match &access.unlock {
        Some(_) => Arc::clone(device),
        None => Arc::new(Beginning { device: Arc::clone(device), end: read_up_to }),
    };
    let how = How { keys: access.unlock.as_deref(), sectors: sector_bytes.into(), others: beside };
    Arc::new(find(device, start, how).await)
}

/// Whether more is known of a volume than its format: keys were tried on it, or it is a part of an array or a volume group.
pub(crate) fn is_known_better(volume: &UnreadVolume, stack: &VolumeStack) -> bool {
    let was_tried = stack.unlocked.as_ref().is_some_and(|unlocked| {
        let opened = unlocked.opened.iter().map(|opened| (&opened.inside, opened.partition));
        let locked = unlocked.locked.iter().map(|locked| (&locked.inside, locked.partition));
        opened.chain(locked).any(|(inside, partition)| inside.is_empty() && partition == volume.partition)
    });
    was_tried || stack.used.contains(&volume.partition)
}
