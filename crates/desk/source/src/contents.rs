//! The volumes of a source, and those among them in formats that are known by name and not read: members of RAIDs and pools,
//! encrypted volumes, some file systems.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io};
use cheetah_image::{Kind, Source};
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

/// Names the volumes of a source whose formats are known and not read. Reads some hundred KiB of each volume; that alone is
/// said if it takes longer than `patience`.
pub async fn unread_volumes(source: &Source, patience: Duration) -> Vec<UnreadVolume> {
    volumes_within(source, patience).await.iter().filter_map(unread).collect()
}

/// The [`volumes`] of a source; only the source as a whole, not examined, if that takes longer than `patience`.
pub(crate) async fn volumes_within(source: &Source, patience: Duration) -> Vec<Volume> {
    tokio::time::timeout(patience, volumes(source)).await.unwrap_or_else(|_| {
        let whole = ByteRange::new(0, source.device.geometry().size);
        vec![Volume::unexamined((None, whole, String::new()), format!("that takes longer than {patience:?}"))]
    })
}

/// The source as a whole, and its partitions, but at most some. Reads some hundred KiB of each. On a disk that fails, a volume that
/// cannot be examined is the last one that is looked at. Of those that are left out, the first says so for all.
pub async fn volumes(source: &Source) -> Vec<Volume> {
    let device = Beginning { device: source.device.clone(), end: readable_up_to(source) };
    let tables = read_tables(&device, recorded_sector_size(source)).await;
    let whole = (None, ByteRange::new(0, device.geometry().size), String::new());
    let partitions = tables.partitions.into_iter();
    let partitions = partitions.map(|partition| (Some(partition.number), partition.range, partition.description));
    let places: Vec<_> = std::iter::once(whole).chain(partitions).collect();
    // A disk that fails is not asked for more than must be read. What a file does not have, it does not have somewhere else.
    let is_disk = source.identity.kind == Kind::Block || source.identity.kind.is_remote();
    let (count, mut found, mut left_out) = (places.len(), Vec::new(), None);
    for (number, place) in places.into_iter().enumerate() {
        if let Some(why) = left_out {
            let more = count - number - 1;
            let these = if more == 0 { "it is".to_owned() } else { format!("it and {more} behind it are") };
            found.push(Volume::unexamined(place, format!("{why}, so {these} left out")));
            break;
        }
        let (partition, range, description) = place;
        let content = identify(&device, range).await;
        left_out = match () {
            () if is_disk && content.unread.is_some() => Some("the disk cannot be read before it".to_owned()),
            () if number == PARTITIONS_MAX => Some(format!("at most {PARTITIONS_MAX} are examined")),
            () => None,
        };
        // Why that is so of an image that is read from start to end, it says of all that lies behind.
        let is_last = device.end < device.geometry().size && content.unread.is_some();
        found.push(Volume { partition, range, description, content });
        if is_last {
            break;
        }
    }
    found
}

impl Volume {
    /// A volume that was not examined, with the reason.
    fn unexamined((partition, range, description): (Option<u32>, ByteRange, String), why: String) -> Self {
        Self { partition, range, description, content: Identified { unread: Some(why), ..Identified::default() } }
    }
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

#[cfg(test)]
mod tests {
    use cheetah_device::memory::Memory;
    use cheetah_image::Identity;
    use cheetah_testing::SilentDevice;
    use cheetah_testing::raid::{disk, mirror};

    use super::*;

    /// A disk of which a part cannot be read.
    struct Damaged {
        inner: Memory,
        bad: ByteRange,
    }

    impl Device for Damaged {
        fn geometry(&self) -> Geometry {
            self.inner.geometry()
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            match self.bad.intersection(range) {
                Some(_) => Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad sector".into() }),
                None => self.inner.read(range),
            }
        }
    }

    fn source(kind: Kind, device: impl Device + 'static) -> Source {
        let identity = Identity::new(kind, "disk", device.geometry().size);
        Source::new(Arc::new(device), identity, "disk".into())
    }

    fn damaged(kind: Kind, bytes: Vec<u8>, bad: ByteRange) -> Source {
        source(kind, Damaged { inner: Memory::new(bytes), bad })
    }

    #[tokio::test]
    async fn what_lies_behind_an_unreadable_volume_is_examined_in_a_file_and_named_on_a_disk() {
        let member = mirror("m", &[7; 64 << 10]);
        let bytes = disk(&[(0x83, &[5; 512 << 10]), (0xfd, &member), (0x83, &[6; 64 << 10])]);
        // Within the first partition, where superblocks are looked for.
        let bad = ByteRange::new((1 << 20) + (64 << 10), 512);
        let of_file = volumes(&damaged(Kind::Raw, bytes.clone(), bad)).await;
        assert_eq!(of_file.len(), 4);
        assert!(of_file[1].content.unread.is_some() && !of_file[2].content.formats.is_empty(), "{of_file:?}");
        let of_disk = volumes(&damaged(Kind::Block, bytes, bad)).await;
        let said: Vec<_> = of_disk.iter().filter_map(unread).map(|one| one.to_string()).collect();
        assert_eq!((of_disk.len(), said.len()), (3, 2), "{said:?}");
        assert_eq!(
            said[1],
            "partition 2 could not be examined for known formats: the disk cannot be read before it, so it and 1 behind it \
             are left out"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_too_long_is_said() {
        let silent = source(Kind::Raw, SilentDevice::new(vec![0; 1 << 20], 0));
        let said = unread_volumes(&silent, Duration::from_secs(10)).await;
        let said: Vec<_> = said.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["it could not be examined for known formats: that takes longer than 10s"]);
    }
}
