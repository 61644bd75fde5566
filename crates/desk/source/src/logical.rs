//! The volumes of a source that are put together from others, arrays of Linux's software RAID and logical volumes of LVM2, and where
//! each is read.
//!
//! One that lies in one piece is read where it lies, as an opened volume is. The others have a place behind the end of the source,
//! in a device that is longer than it ([`LogicalVolumes::behind`]): so each has an offset for tools that want one. Arrays come first:
//! physical volumes may lie on them.

use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_unlock::Unlocked;
use cheetah_volume::formats::{Format, LVM2};
use cheetah_volume::partition::read_partitions;
use cheetah_volume::recognise::START_BYTES;
use cheetah_volume::{lvm, md};
use serde::Serialize;

use crate::assembled::{Assembled, Described, PlacedVolume};
use crate::contents::{Beginning, Volume};

/// Volumes begin at multiples of this behind the end of a source: tools count in sectors.
const ALIGNMENT: u64 = 4096;

/// The length of a partition table at the start of a device.
const TABLE_BYTES: u64 = 20 << 10;

/// The number of a partition, `None` for the whole source, and its place.
type Place = (Option<u32>, ByteRange);

/// The largest offset that a file may have.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The places that volumes are put together from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    /// Those that may be members of arrays.
    members: Vec<Place>,
    /// Those that may be physical volumes.
    physical: Vec<Place>,
}

/// The volumes of a source that are put together from others.
#[derive(Debug, Clone, Default)]
pub struct LogicalVolumes {
    /// Those that can be read: arrays, then logical volumes.
    pub volumes: Vec<PlacedVolume>,
    /// What is known of arrays and volume groups and cannot be read, a sentence without its end each.
    pub not_opened: Vec<String>,
    /// The numbers of the partitions that are members of an array or physical volumes of a group; `None` for the whole source.
    pub used: Vec<Option<u32>>,
}

/// The volumes of a source that are put together from others, as JSON.
#[derive(Debug, Serialize)]
pub struct LogicalOutcome<'a> {
    volumes: Vec<Described<'a>>,
    not_opened: &'a [String],
}

impl LogicalVolumes {
    /// Describes them.
    pub fn outcome(&self) -> LogicalOutcome<'_> {
        let volumes = self.volumes.iter().map(PlacedVolume::described).collect();
        LogicalOutcome { volumes, not_opened: &self.not_opened }
    }

    /// Puts together the arrays and the logical volumes of a device, at `places` and in volumes that keys opened or came upon.
    /// Superblocks are looked for in the part of the device that is read without much cost, up to `read_up_to`.
    pub(crate) async fn find(
        device: &DynDevice,
        mut places: Places,
        unlocked: Option<&Arc<Unlocked>>,
        read_up_to: u64,
    ) -> Self {
        if let Some(unlocked) = unlocked {
            let opened: Vec<_> = unlocked.opened.iter().map(|volume| (volume.partition, volume.range())).collect();
            places.physical.extend(unlocked.physical.iter().chain(&opened));
            places.members.extend(unlocked.members.iter().chain(&opened));
        }
        let mut found = Self::default();
        let below = decrypted(device, unlocked);
        if !places.members.is_empty() {
            found.add_arrays(&below, &mut places, read_up_to).await;
        }
        let arrays: Vec<_> = found.volumes.iter().map(PlacedVolume::range).collect();
        if places.physical.is_empty() && arrays.is_empty() {
            return found;
        }
        match behind(below, &found.volumes) {
            Ok(with_arrays) => found.add_logical(&with_arrays, &places.physical, &arrays).await,
            Err(error) => found.not_opened.push(error.to_string()),
        }
        found
    }

    /// Adds the arrays, and takes the places of their members from those that may be physical volumes: the content of a member begins
    /// where the array says.
    async fn add_arrays(&mut self, below: &DynDevice, places: &mut Places, read_up_to: u64) {
        let ranges: Vec<_> = places.members.iter().map(|(_, range)| *range).collect();
        let beginning = Beginning { device: Arc::clone(below), end: read_up_to };
        let assembly = md::assemble(&beginning, &ranges).await;
        let is_member = |(_, range): &Place| assembly.members.contains(range);
        self.used.extend(places.members.iter().filter(|place| is_member(place)).map(|(partition, _)| *partition));
        places.physical.retain(|place| !is_member(place));
        self.not_opened.extend(assembly.not_opened.iter().map(ToString::to_string));
        self.place(assembly.arrays.into_iter().map(Assembled::Array), below.geometry().size);
    }

    /// Adds the logical volumes of a device that has arrays behind the end of the source.
    async fn add_logical(&mut self, with_arrays: &DynDevice, physical: &[Place], arrays: &[ByteRange]) {
        let ranges: Vec<_> = physical.iter().map(|(_, range)| range).chain(arrays).copied().collect();
        let assembly = lvm::assemble(&**with_arrays, &ranges).await;
        let is_used = |(_, range): &&Place| assembly.physical.contains(range);
        self.used.extend(physical.iter().filter(is_used).map(|(partition, _)| *partition));
        self.not_opened.extend(assembly.not_opened.iter().map(ToString::to_string));
        self.place(assembly.volumes.into_iter().map(Assembled::Logical), with_arrays.geometry().size);
    }

    /// Gives each volume its offset, in a device that ends at `end`.
    fn place(&mut self, volumes: impl Iterator<Item = Assembled>, mut end: u64) {
        for volume in volumes {
            let place = match volume.in_one_piece() {
                Some(range) => Some(range),
                None => next_place(end, volume.size_bytes()),
            };
            let Some(place) = place else {
                self.not_opened.push(format!("the {} is too large to be opened", volume.description()));
                continue;
            };
            end = end.max(place.end());
            self.volumes.push(PlacedVolume { volume, offset: place.offset });
        }
    }

    /// Returns the volumes with the ends of their names, of the source that `below` shows decrypted.
    pub(crate) fn named(&self, below: &DynDevice) -> Result<Vec<(String, DynDevice)>> {
        let with_arrays = behind(Arc::clone(below), self.arrays())?;
        let named = |one: &PlacedVolume| {
            let below = if one.is_array() { below } else { &with_arrays };
            Ok((one.volume.label(), one.volume.over(below)?))
        };
        self.volumes.iter().map(named).collect()
    }

    /// Returns the source that `below` shows decrypted, and behind its end the volumes that lie in several pieces.
    pub(crate) fn behind(&self, below: DynDevice) -> Result<DynDevice> {
        behind(behind(below, self.arrays())?, self.logical())
    }

    /// Returns the pieces in the source, of `size` bytes, of each volume that lies in it as a list of pieces.
    pub(crate) fn pieces(&self, size: u64) -> impl Iterator<Item = Vec<ByteRange>> {
        let are_inside = move |pieces: &Vec<ByteRange>| pieces.iter().all(|piece| piece.fits(size));
        self.volumes.iter().filter_map(|one| one.volume.pieces()).filter(are_inside)
    }

    fn arrays(&self) -> &[PlacedVolume] {
        self.volumes.split_at(self.first_logical()).0
    }

    fn logical(&self) -> &[PlacedVolume] {
        self.volumes.split_at(self.first_logical()).1
    }

    fn first_logical(&self) -> usize {
        self.volumes.partition_point(PlacedVolume::is_array)
    }
}

impl PlacedVolume {
    fn is_array(&self) -> bool {
        matches!(self.volume, Assembled::Array(_))
    }

    fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.volume.size_bytes())
    }
}

/// Returns a device, and behind its end the volumes on it that lie in several pieces.
fn behind(below: DynDevice, volumes: &[PlacedVolume]) -> Result<DynDevice> {
    let (mut parts, mut end) = (vec![Arc::clone(&below)], below.geometry().size);
    for one in volumes.iter().filter(|one| one.volume.in_one_piece().is_none()) {
        if one.offset > end {
            // Less than a page.
            parts.push(Arc::new(Memory::new(vec![0; (one.offset - end) as usize])));
        }
        parts.push(one.volume.over(&below)?);
        end = one.range().end();
    }
    match parts.len() {
        1 => Ok(below),
        _ => Ok(Arc::new(Linear::new(parts).map_err(Error::device("showing logical volumes"))?)),
    }
}

/// The places of members of arrays and of physical volumes among `volumes`, which were examined.
pub(crate) fn places_among(volumes: &[Volume]) -> Places {
    let mut places = Places::default();
    for Volume { partition, range, content, .. } in volumes {
        if content.formats.iter().any(Format::is_linux_raid) {
            places.members.push((*partition, *range));
        }
        if content.formats.iter().any(|format| format.name == LVM2) {
            places.physical.push((*partition, *range));
        }
    }
    places
}

/// The places where the partition table of a device has members of arrays and physical volumes, or the whole of it if it has no table.
/// Reads the table, which tools read first, too.
pub(crate) async fn places_by_table(device: &DynDevice, sector_bytes: Option<u32>) -> Places {
    let size = device.geometry().size;
    // The entries of a GPT, at the same time: one behind the other would take a round trip more on a link.
    let entries = ByteRange::between(START_BYTES.min(size), TABLE_BYTES.min(size));
    let (partitions, _) = futures::join!(read_partitions(&**device, sector_bytes), device.read(entries));
    if partitions.is_empty() {
        let whole = vec![(None, ByteRange::new(0, size))];
        return Places { members: whole.clone(), physical: whole };
    }
    let mut places = Places::default();
    for partition in partitions {
        let place = (Some(partition.number), partition.range);
        if partition.is_for_lvm() {
            places.physical.push(place);
        } else if partition.is_for_linux_raid() {
            places.members.push(place);
        }
    }
    places
}

/// The device with opened volumes decrypted.
pub(crate) fn decrypted(device: &DynDevice, unlocked: Option<&Arc<Unlocked>>) -> DynDevice {
    unlocked.map_or_else(|| Arc::clone(device), |unlocked| unlocked.over(Arc::clone(device)))
}

/// The next place behind `end`.
fn next_place(end: u64, len: u64) -> Option<ByteRange> {
    let offset = end.checked_next_multiple_of(ALIGNMENT)?;
    offset.checked_add(len).filter(|end| *end <= OFFSET_MAX).map(|end| ByteRange::between(offset, end))
}
