//! The volumes of a source, and those among them in formats that are known by name and not read: members of RAIDs and pools,
//! encrypted volumes, some file systems.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io};
use cheetah_image::Source;
use cheetah_volume::formats::{Identified, identify};
use cheetah_volume::partition::read_tables;

use crate::doubts::{readable_up_to, recorded_sector_size};

/// The maximum number of partitions that are examined.
const PARTITIONS_MAX: usize = 64;

/// A volume in a format that is named and not read, or that could not be examined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadVolume {
    /// The number of the partition; `None` for the source as a whole.
    pub partition: Option<u32>,
    /// The formats, in words; empty if it could not be examined.
    formats: Vec<String>,
    /// Why it could not be examined.
    unread: String,
}

impl fmt::Display for UnreadVolume {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partition {
            Some(number) => write!(f, "partition {number} ")?,
            None => f.write_str("it ")?,
        }
        match &self.formats[..] {
            [] => write!(f, "could not be examined for known formats: {}", self.unread),
            names => write!(f, "holds {}, in which no files are read", names.join(" and ")),
        }
    }
}

/// A volume of a source, and what is known of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The number of the partition; `None` for the source as a whole.
    pub partition: Option<u32>,
    /// Its range.
    pub range: ByteRange,
    /// What the table says of it; empty for the source as a whole.
    pub description: String,
    /// The formats whose signatures it has, and why it could not be examined, if so.
    pub content: Identified,
}

/// Names the volumes of a source whose formats are known and not read. Reads some hundred KiB of each volume; nothing is
/// returned if that takes longer than `patience`.
pub async fn unread_volumes(source: &Source, patience: Duration) -> Vec<UnreadVolume> {
    volumes_within(source, patience).await.iter().filter_map(unread).collect()
}

/// The [`volumes`] of a source; none if that takes longer than `patience`.
pub(crate) async fn volumes_within(source: &Source, patience: Duration) -> Vec<Volume> {
    tokio::time::timeout(patience, volumes(source)).await.unwrap_or_default()
}

/// The source as a whole, and its partitions, but at most some. Reads some hundred KiB of each. A volume that cannot be examined is
/// the last one.
pub async fn volumes(source: &Source) -> Vec<Volume> {
    let device = Beginning { device: source.device.clone(), end: readable_up_to(source) };
    let tables = read_tables(&device, recorded_sector_size(source)).await;
    let whole = (None, ByteRange::new(0, device.geometry().size), String::new());
    let partitions = tables.partitions.into_iter();
    let partitions = partitions.map(|partition| (Some(partition.number), partition.range, partition.description));
    let mut found = Vec::new();
    for (partition, range, description) in std::iter::once(whole).chain(partitions.take(PARTITIONS_MAX)) {
        let content = identify(&device, range).await;
        // A disk that fails is not asked for more than must be read.
        let fails = content.unread.is_some();
        found.push(Volume { partition, range, description, content });
        if fails {
            break;
        }
    }
    found
}

/// Returns the volume, unless triage lists it or nothing is known of it.
pub(crate) fn unread(volume: &Volume) -> Option<UnreadVolume> {
    let Volume { partition, content: found, .. } = volume;
    let formats: Vec<_> =
        found.formats.iter().filter(|format| format.family.is_empty()).map(ToString::to_string).collect();
    let unread = found.unread.as_ref().filter(|_| found.formats.is_empty());
    (!formats.is_empty() || unread.is_some()).then(|| UnreadVolume {
        partition: *partition,
        formats,
        unread: unread.cloned().unwrap_or_default(),
    })
}

/// A device of which only the beginning is read: the end of an image that is read from start to end would cost all of it.
pub(crate) struct Beginning {
    pub(crate) device: DynDevice,
    pub(crate) end: u64,
}

impl Device for Beginning {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match range.end() <= self.end {
            true => self.device.read(range),
            false => Io::fail(Error::Invalid(Arc::from("it can be read only from start to end"))),
        }
    }
}
