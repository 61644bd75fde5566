//! Finds the locked volumes of a device, and opens those that a key fits.

use std::fmt;
use std::sync::Arc;

use cheetah_device::{ByteRange, DynDevice};
use cheetah_volume::formats::{BITLOCKER, Format, LUKS, identify};
use cheetah_volume::partition::{SectorSize, read_tables};

use crate::bitlocker;
use crate::key::Keys;
use crate::layer::{Decrypted, OpenedVolumes};
use crate::luks;
use crate::opened::Opened;
use crate::piece::Piece;
use crate::refusal::{Refusal, Result};

/// The maximum number of partitions that are examined.
const PARTITIONS_MAX: usize = 64;

/// The locked volumes of a device, after each key was tried on each.
pub struct Unlocked {
    /// Those that are open, in the order of the partitions.
    pub opened: Vec<OpenedVolume>,
    /// Those that are not.
    pub locked: Vec<StillLocked>,
    volumes: OpenedVolumes,
}

/// A volume that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedVolume {
    /// The number of its partition; `None` if it is the whole device.
    pub partition: Option<u32>,
    /// Where its content is read: in the offsets of the device.
    pub range: ByteRange,
    /// Its format and identifiers, as they are named while it is locked.
    pub format: String,
    /// What opened it: the kind of protector and its identifier, and nothing of the key.
    pub protector: String,
}

/// A volume that stays locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StillLocked {
    /// The number of its partition; `None` if it is the whole device.
    pub partition: Option<u32>,
    /// Its format and identifiers.
    pub format: String,
    /// Why no key opened it.
    pub why: Refusal,
}

impl Unlocked {
    /// Shows the opened volumes in `below`, which has the offsets of the device: each sector where it lies encrypted.
    pub fn over(&self, below: DynDevice) -> DynDevice {
        Arc::new(Decrypted::over(below, self.volumes.clone()))
    }
}

/// Tries the keys on the locked volumes of a device: its partitions, or the whole of it. Reads some hundred KiB of each volume.
pub async fn unlock(device: &DynDevice, sectors: SectorSize, keys: &Keys) -> Unlocked {
    let whole = (None, ByteRange::new(0, device.geometry().size));
    let tables = read_tables(device, sectors).await;
    let partitions = tables.partitions.iter().map(|partition| (Some(partition.number), partition.range));
    let (mut opened, mut locked, mut volumes) = (Vec::new(), Vec::new(), Vec::<Opened>::new());
    for (partition, range) in std::iter::once(whole).chain(partitions.take(PARTITIONS_MAX)) {
        let Some(format) = locked_format(device, range).await else { continue };
        let is_apart = |volume: &Opened| volume.range().intersection(range).is_none();
        let piece = Piece { device: Arc::clone(device), range };
        let outcome = match volumes.iter().all(is_apart) {
            true => open(&piece, &format, keys).await,
            false => Err(Refusal::Damaged("it overlaps a volume that is open")),
        };
        let format = format.to_string();
        match outcome {
            Ok(volume) => {
                let (range, protector) = (volume.range(), volume.protector().to_owned());
                opened.push(OpenedVolume { partition, range, format, protector });
                volumes.push(volume);
            }
            Err(why) => locked.push(StillLocked { partition, format, why }),
        }
    }
    Unlocked { opened, locked, volumes: OpenedVolumes::new(volumes) }
}

/// The format of a volume, if it is one that a key may open.
async fn locked_format(device: &DynDevice, range: ByteRange) -> Option<Format> {
    let identified = identify(device, range).await;
    identified.formats.into_iter().find(|format| matches!(format.name, LUKS | BITLOCKER))
}

async fn open(volume: &Piece, format: &Format, keys: &Keys) -> Result<Opened> {
    match format.name {
        LUKS => luks::open(volume, keys).await,
        _ => bitlocker::open(volume, keys).await,
    }
}

/// The volume as the subject of a sentence.
fn subject(f: &mut fmt::Formatter<'_>, partition: Option<u32>, format: &str) -> fmt::Result {
    match partition {
        Some(number) => write!(f, "partition {number}, {format},"),
        None => write!(f, "it is {format}, and"),
    }
}

impl fmt::Display for OpenedVolume {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        subject(f, self.partition, &self.format)?;
        write!(f, " was opened with {}", self.protector)
    }
}

impl fmt::Display for StillLocked {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        subject(f, self.partition, &self.format)?;
        let why = self.why.to_string();
        write!(f, " stays locked: {}", cheetah_device::visible::OneLine(&why))
    }
}
