//! Finds the locked volumes of a device, and opens those that a key fits.

use std::fmt;
use std::sync::Arc;

use cheetah_device::{ByteRange, DynDevice};
use cheetah_volume::formats::{BITLOCKER, Format, Identified, LUKS, LVM2, identify};
use cheetah_volume::partition::{SectorSize, read_tables};

use crate::bitlocker;
use crate::key::{DetachedHeader, Keys};
use crate::layer::{Decrypted, OpenedVolumes};
use crate::luks;
use crate::opened::Opened;
use crate::outcome::{LockedVolume, OpenedVolume, Outcome};
use crate::piece::Piece;
use crate::refusal::{Refusal, Result};
use crate::veracrypt;

/// The maximum number of partitions that are examined.
const PARTITIONS_MAX: usize = 64;
/// What a volume is called that is tried as one of VeraCrypt: nothing tells.
const MAYBE_VERACRYPT: &str = "unknown format (VeraCrypt?)";

/// The locked volumes of a device, after each key was tried on each.
pub struct Unlocked {
    /// Those that are open, in the order of the partitions.
    pub opened: Vec<OpenedVolume>,
    /// Those that are not.
    pub locked: Vec<StillLocked>,
    /// The physical volumes of LVM2 that are not encrypted: the numbers of their partitions, `None` for the whole device, and
    /// their places.
    pub physical: Vec<(Option<u32>, ByteRange)>,
    /// The members of arrays of Linux that are not encrypted, in the same way.
    pub members: Vec<(Option<u32>, ByteRange)>,
    volumes: OpenedVolumes,
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

    /// What the keys did, for logs and reports.
    pub fn outcome(&self) -> Outcome {
        Outcome { opened: self.opened.clone(), locked: self.locked.iter().map(StillLocked::described).collect() }
    }
}

impl StillLocked {
    fn described(&self) -> LockedVolume {
        LockedVolume { partition: self.partition, format: self.format.clone(), why: self.why.to_string() }
    }
}

impl fmt::Display for StillLocked {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.described().fmt(f)
    }
}

/// Tries the keys on the locked volumes of a device: its partitions, or the whole of it. Reads some hundred KiB of each volume.
pub async fn unlock(device: &DynDevice, sectors: SectorSize, keys: &Keys) -> Unlocked {
    let whole = (None, ByteRange::new(0, device.geometry().size));
    let tables = read_tables(device, sectors).await;
    let partitions = tables.partitions.iter().map(|partition| (Some(partition.number), partition.range));
    let has_partitions = !tables.partitions.is_empty();
    let mut tried = Tried { device, keys, opened: Vec::new(), locked: Vec::new(), volumes: Vec::new() };
    let (mut unnamed, mut physical, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for (partition, range) in std::iter::once(whole).chain(partitions.take(PARTITIONS_MAX)) {
        let identified = identify(device, range).await;
        if let Some(format) = locked_format(&identified) {
            tried.try_volume(partition, range, format).await;
        } else if identified.formats.iter().any(|format| format.name == LVM2) {
            physical.push((partition, range));
        } else if identified.formats.iter().any(Format::is_linux_raid) {
            members.push((partition, range));
        } else if identified.formats.is_empty() && (partition.is_some() || !has_partitions) {
            unnamed.push((partition, range));
        }
    }
    for header in keys.headers() {
        tried.try_header(header, &unnamed).await;
    }
    if keys.veracrypt().next().is_some() {
        for (partition, range) in unnamed {
            tried.try_unnamed(partition, range).await;
        }
    }
    let Tried { mut opened, locked, volumes, .. } = tried;
    opened.sort_by_key(|volume| volume.partition);
    Unlocked { opened, locked, physical, members, volumes: OpenedVolumes::new(volumes) }
}

/// The format of a volume, if it is one that a key may open.
fn locked_format(identified: &Identified) -> Option<&Format> {
    identified.formats.iter().find(|format| matches!(format.name, LUKS | BITLOCKER))
}

/// A device, and what the keys did so far.
struct Tried<'a> {
    device: &'a DynDevice,
    keys: &'a Keys,
    opened: Vec<OpenedVolume>,
    locked: Vec<StillLocked>,
    volumes: Vec<Opened>,
}

impl Tried<'_> {
    async fn try_volume(&mut self, partition: Option<u32>, range: ByteRange, format: &Format) {
        let piece = Piece { device: Arc::clone(self.device), range };
        let outcome = match (self.is_apart(range), format.name) {
            (false, _) => Err(Refusal::Damaged("it overlaps a volume that is open")),
            (true, LUKS) => luks::open(&piece, self.keys).await,
            (true, _) => bitlocker::open(&piece, self.keys).await,
        };
        let format = format.to_string();
        match outcome {
            Ok(volume) => self.add(partition, format, volume),
            Err(why) => self.locked.push(StillLocked { partition, format, why }),
        }
    }

    /// Tries the passwords of VeraCrypt on a volume without a known format.
    async fn try_unnamed(&mut self, partition: Option<u32>, range: ByteRange) {
        if !self.is_apart(range) {
            return;
        }
        match veracrypt::open(&Piece { device: Arc::clone(self.device), range }, self.keys).await {
            Ok(Some(volume)) => self.add(partition, "VeraCrypt".to_owned(), volume),
            Ok(None) => {}
            Err(why) => self.locked.push(StillLocked { partition, format: MAYBE_VERACRYPT.to_owned(), why }),
        }
    }

    /// Tries the header on the volumes without a known format: it belongs to those that have one when they are decrypted.
    async fn try_header(&mut self, header: &DetachedHeader, unnamed: &[(Option<u32>, ByteRange)]) {
        let piece = header.piece();
        let identified = identify(&piece.device, piece.range).await;
        let format = locked_format(&identified).map_or(LUKS.to_owned(), ToString::to_string);
        let format = format!("{format}, whose header is in {}", header.name);
        let mut outcome = luks::unseal(&piece, self.keys).await;
        if let Ok(unsealed) = &outcome {
            let before = self.opened.len();
            for (partition, range) in unnamed {
                if self.is_apart(*range) && self.has_format(unsealed.opened(*range)).await {
                    // Decrypts as the one that was examined.
                    if let Ok(volume) = unsealed.opened(*range) {
                        self.add(*partition, format.clone(), volume);
                    }
                }
            }
            if self.opened.len() == before {
                outcome = Err(Refusal::NoVolume);
            }
        }
        if let Err(why) = outcome {
            self.locked.push(StillLocked { partition: None, format, why });
        }
    }

    /// Whether the content of a volume has a known format.
    async fn has_format(&self, volume: Result<Opened>) -> bool {
        let Ok(volume) = volume else { return false };
        let range = volume.range();
        let decrypted = Decrypted::over(Arc::clone(self.device), OpenedVolumes::new(vec![volume]));
        !identify(&decrypted, range).await.formats.is_empty()
    }

    fn is_apart(&self, range: ByteRange) -> bool {
        self.volumes.iter().all(|volume| volume.range().intersection(range).is_none())
    }

    fn add(&mut self, partition: Option<u32>, format: String, volume: Opened) {
        let (range, protector) = (volume.range(), volume.protector().to_owned());
        self.opened.push(OpenedVolume { partition, offset: range.offset, size_bytes: range.len, format, protector });
        self.volumes.push(volume);
    }
}
