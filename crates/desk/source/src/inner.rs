//! The volumes in a source, as they are looked for when it is opened.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::DynDevice;
use cheetah_drive::DriveFile;
use cheetah_error::{Error, Result};
use cheetah_image::Source;

use crate::access::Access;
use crate::contents::{Beginning, UnreadVolume};
use crate::doubts::readable_up_to;
use crate::stack::{How, NotShown, ShadowCopies, Start, VolumeStack, by_table, find};

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
        // Other sources are named because it has parts of the same volumes, whatever its partition table says.
        None if !beside.is_empty() => Start::Source,
        None if access.copies().are_asked_for() => by_table(device, sector_bytes).await,
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
    let (keys, sectors) = (access.unlock.as_deref(), sector_bytes.into());
    Arc::new(find(device, start, How { keys, sectors, others: beside, copies: access.copies() }).await)
}

/// Lists the shadow copies of the volumes that the partition table of a source names.
async fn copies_in(source: &Source) -> VolumeStack {
    let sector_bytes = source.identity.sector_size;
    let device = DynDevice::clone(&source.device);
    let device: DynDevice = Arc::new(Beginning { device, end: readable_up_to(source) });
    let start = by_table(&device, sector_bytes).await.for_copies();
    let how = How { sectors: sector_bytes.into(), copies: ShadowCopies::Listed, ..How::default() };
    find(device, start, how).await
}

/// The same; a note that they are not listed if that takes longer than `patience`.
pub(crate) async fn copies_within(source: &Source, patience: Duration) -> VolumeStack {
    tokio::time::timeout(patience, copies_in(source)).await.unwrap_or_else(|_| {
        let mut stack = VolumeStack::default();
        stack.not_opened.push(NotShown::SlowCatalog(patience));
        stack
    })
}

/// Fails if shadow copies that are asked for by their names are not shown.
pub(crate) fn check_copies(stack: &VolumeStack, access: &Access, location: &str) -> Result<()> {
    for name in access.shadow_copies.names() {
        match stack.copies.iter().find(|copy| copy.name == *name) {
            Some(copy) if copy.is_shown => {}
            Some(_) => {
                // Of each that is not opened, there is a sentence.
                let why: Vec<_> = stack.not_opened.iter().map(ToString::to_string).collect();
                let why = why.join("; ");
                return Err(Error::evidence(format!("{location}: the shadow copy {name} cannot be read: {why}")));
            }
            None => return Err(Error::misuse(format!("{location}: {}", stack.no_copy(name)))),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use cheetah_image::{Identity, Kind};
    use cheetah_testing::SilentDevice;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_for_shadow_copies_that_takes_too_long_is_said() {
        let device = Arc::new(SilentDevice::new(vec![0; 1 << 20], 0));
        let source = Source::new(device, Identity::new(Kind::Nbd, "nbd://host/", 1 << 20), "host".into());
        let stack = copies_within(&source, Duration::from_secs(10)).await;
        assert_eq!(stack.not_opened, [NotShown::SlowCatalog(Duration::from_secs(10))]);
    }
}
