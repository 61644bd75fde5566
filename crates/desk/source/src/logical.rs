//! The logical volumes of LVM2 in a source, and where each is read.
//!
//! One that lies in one piece is read where it lies, as an opened volume is. The others have a place behind the end of the source,
//! in a device that is longer than it ([`LogicalVolumes::behind`]): so each has an offset for tools that want one.

use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, DynDevice, Size};
use cheetah_error::{Error, Result};
use cheetah_unlock::Unlocked;
use cheetah_volume::formats::LVM2;
use cheetah_volume::lvm::{LogicalVolume, assemble};
use cheetah_volume::partition::{Partition, read_partitions};
use cheetah_volume::recognise::START_BYTES;
use serde::Serialize;

use crate::contents::Volume;

/// Volumes begin at multiples of this behind the end of a source: tools count in sectors.
const ALIGNMENT: u64 = 4096;

/// The length of a partition table at the start of a device.
const TABLE_BYTES: u64 = 20 << 10;

/// The number of a partition, `None` for the whole source, and its place.
type Place = (Option<u32>, ByteRange);

/// The largest offset that a file may have.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The logical volumes of a source.
#[derive(Debug, Clone, Default)]
pub struct LogicalVolumes {
    /// Those that can be read.
    pub volumes: Vec<PlacedVolume>,
    /// What is known of volume groups and cannot be read, a sentence without its end each.
    pub not_opened: Vec<String>,
    /// The numbers of the partitions that are physical volumes of a group; `None` for the whole source.
    pub physical: Vec<Option<u32>>,
}

/// A logical volume, and where it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedVolume {
    /// The volume.
    pub volume: LogicalVolume,
    /// Where its content begins: in the source, or behind its end if it lies there in several pieces.
    pub offset: u64,
}

/// The logical volumes of a source, as JSON.
#[derive(Debug, Serialize)]
pub struct LogicalOutcome<'a> {
    volumes: Vec<Described<'a>>,
    not_opened: &'a [String],
}

/// A logical volume, as JSON.
#[derive(Debug, Serialize)]
struct Described<'a> {
    group: &'a str,
    name: &'a str,
    /// The end of its name as a file of a mount.
    label: String,
    id: &'a str,
    offset: u64,
    size_bytes: u64,
}

impl LogicalVolumes {
    /// Describes them.
    pub fn outcome(&self) -> LogicalOutcome<'_> {
        let volumes = self.volumes.iter().map(PlacedVolume::described).collect();
        LogicalOutcome { volumes, not_opened: &self.not_opened }
    }

    /// Puts together the logical volumes of a device, on the physical ones at `places` and those that keys opened or came upon.
    pub(crate) async fn find(device: &DynDevice, mut places: Vec<Place>, unlocked: Option<&Arc<Unlocked>>) -> Self {
        if let Some(unlocked) = unlocked {
            places.extend(unlocked.physical.iter().copied());
            places.extend(unlocked.opened.iter().map(|volume| (volume.partition, volume.range())));
        }
        if places.is_empty() {
            return Self::default();
        }
        let ranges: Vec<_> = places.iter().map(|(_, range)| *range).collect();
        let assembly = assemble(&*decrypted(device, unlocked), &ranges).await;
        let is_used = |(_, range): &&Place| assembly.physical.contains(range);
        let physical = places.iter().filter(is_used).map(|(partition, _)| *partition).collect();
        let mut not_opened: Vec<_> = assembly.not_opened.iter().map(ToString::to_string).collect();
        let (volumes, too_large) = placed(assembly.volumes, device.geometry().size);
        let too_large =
            too_large.iter().map(|one| format!("the logical volume {} is too large to be opened", one.label()));
        not_opened.extend(too_large);
        Self { volumes, not_opened, physical }
    }

    /// Returns the volumes with the ends of their names, of the source that `below` shows decrypted.
    pub(crate) fn named(&self, below: &DynDevice) -> Result<Vec<(String, DynDevice)>> {
        self.volumes.iter().map(|one| Ok((one.volume.label(), one.over(below)?))).collect()
    }

    /// Returns the source that `below` shows decrypted, and behind its end the volumes that lie in several pieces.
    pub(crate) fn behind(&self, below: DynDevice) -> Result<DynDevice> {
        let size = below.geometry().size;
        let (mut parts, mut end) = (vec![Arc::clone(&below)], size);
        for one in self.volumes.iter().filter(|one| one.offset >= size) {
            if one.offset > end {
                // Less than a page.
                parts.push(Arc::new(Memory::new(vec![0; (one.offset - end) as usize])));
            }
            parts.push(one.over(&below)?);
            end = one.offset.saturating_add(one.volume.size_bytes);
        }
        match parts.len() {
            1 => Ok(below),
            _ => Ok(Arc::new(Linear::new(parts).map_err(Error::device("showing logical volumes"))?)),
        }
    }

    /// Returns the pieces of each volume that is not striped.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Vec<ByteRange>> {
        self.volumes.iter().filter_map(|one| one.volume.pieces())
    }
}

impl PlacedVolume {
    fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        self.volume.over(below).map_err(Error::device("showing a logical volume"))
    }

    fn described(&self) -> Described<'_> {
        let LogicalVolume { group, name, id, size_bytes, .. } = &self.volume;
        let (label, offset, size_bytes) = (self.volume.label(), self.offset, *size_bytes);
        Described { group, name, label, id, offset, size_bytes }
    }

    /// Names it, with its size.
    pub fn description(&self) -> String {
        let LogicalVolume { group, name, size_bytes, .. } = &self.volume;
        format!("logical volume {group}/{name} ({})", Size(*size_bytes))
    }
}

/// The places of physical volumes among `volumes`, which were examined.
pub(crate) fn physical_among(volumes: &[Volume]) -> Vec<Place> {
    let is_physical = |volume: &&Volume| volume.content.formats.iter().any(|format| format.name == LVM2);
    volumes.iter().filter(is_physical).map(|volume| (volume.partition, volume.range)).collect()
}

/// The places where the partition table of a device has physical volumes, or the whole of it if it has no table. Reads the table,
/// which tools read first, too.
pub(crate) async fn physical_by_table(device: &DynDevice, sector_bytes: Option<u32>) -> Vec<Place> {
    let size = device.geometry().size;
    // The entries of a GPT, at the same time: one behind the other would take a round trip more on a link.
    let entries = ByteRange::between(START_BYTES.min(size), TABLE_BYTES.min(size));
    let (partitions, _) = futures::join!(read_partitions(&**device, sector_bytes), device.read(entries));
    match partitions.is_empty() {
        true => vec![(None, ByteRange::new(0, size))],
        false => partitions
            .into_iter()
            .filter(Partition::is_for_lvm)
            .map(|partition| (Some(partition.number), partition.range))
            .collect(),
    }
}

/// The device with opened volumes decrypted.
pub(crate) fn decrypted(device: &DynDevice, unlocked: Option<&Arc<Unlocked>>) -> DynDevice {
    unlocked.map_or_else(|| Arc::clone(device), |unlocked| unlocked.over(Arc::clone(device)))
}

/// Gives each volume its offset, in a source of `size` bytes; and returns those that would lie beyond any offset.
fn placed(volumes: Vec<LogicalVolume>, size: u64) -> (Vec<PlacedVolume>, Vec<LogicalVolume>) {
    let (mut placed, mut too_large, mut end) = (Vec::new(), Vec::new(), size);
    for volume in volumes {
        let place = match volume.in_one_piece() {
            Some(range) => Some(range),
            None => behind(end, volume.size_bytes),
        };
        let Some(place) = place else {
            too_large.push(volume);
            continue;
        };
        if volume.in_one_piece().is_none() {
            end = place.end();
        }
        placed.push(PlacedVolume { volume, offset: place.offset });
    }
    (placed, too_large)
}

/// The next place behind `end`.
fn behind(end: u64, len: u64) -> Option<ByteRange> {
    let offset = end.checked_next_multiple_of(ALIGNMENT)?;
    offset.checked_add(len).filter(|end| *end <= OFFSET_MAX).map(|end| ByteRange::between(offset, end))
}
