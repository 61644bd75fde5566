//! Tries keys on the volumes of a device, and opens those that a key fits.

use std::fmt;
use std::sync::Arc;

use cheetah_device::{ByteRange, DynDevice};
use cheetah_volume::formats::{APFS, BITLOCKER, CORE_STORAGE, Format, Identified, LUKS, identify};

use crate::apfs;
use crate::beside::beside;
use crate::bitlocker;
use crate::core_storage;
use crate::key::{DetachedHeader, Keys};
use crate::layer::OpenedVolumes;
use crate::luks;
use crate::opened::Opened;
use crate::outcome::{LockedVolume, OpenedVolume, Outcome};
use crate::piece::Piece;
use crate::place::Place;
use crate::refusal::{Refusal, Result};
use crate::veracrypt::{self, Open};

/// What a volume is called that is tried as one of VeraCrypt: nothing tells.
const MAYBE_VERACRYPT: &str = "unknown format (VeraCrypt?)";

/// Bytes at the start of a volume of BitLocker that are read while keys are tried. The first sectors say where the parts of the file system
/// lie. Trying a password takes longer than this read. A longer read would delay the reads that follow, because a new connection is slow.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// The encrypted volumes of a device, after each key was tried on each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unlocked {
    /// Those that are open, in the order in which they were found.
    pub opened: Vec<OpenedVolume>,
    /// Those that are not.
    pub locked: Vec<StillLocked>,
}

/// A volume that stays locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StillLocked {
    /// The number of its partition; `None` if it is no partition.
    pub partition: Option<u32>,
    /// The name of the volume that it is, or whose partition; empty for the device as a whole.
    pub inside: String,
    /// Its format and identifiers.
    pub format: String,
    /// Why no key opened it.
    pub why: Refusal,
}

impl Unlocked {
    /// What the keys did, for logs and reports.
    pub fn outcome(&self) -> Outcome {
        Outcome { opened: self.opened.clone(), locked: self.locked.iter().map(StillLocked::described).collect() }
    }
}

impl StillLocked {
    fn described(&self) -> LockedVolume {
        let Self { partition, inside, format, why } = self;
        LockedVolume { partition: *partition, inside: inside.clone(), format: format.clone(), why: why.to_string() }
    }
}

impl fmt::Display for StillLocked {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.described().fmt(f)
    }
}

/// A volume that was examined.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Where it lies.
    pub place: Place,
    /// What is known of its content.
    pub content: Identified,
}

impl Candidate {
    /// Examines a volume. Reads some hundred KiB of it.
    pub async fn examine(device: &DynDevice, place: Place) -> Self {
        let content = identify(&**device, place.range).await;
        Self { place, content }
    }

    /// The format of the volume, if it is one that a key may open.
    pub fn locked_format(&self) -> Option<&Format> {
        locked_format(&self.content)
    }
}

fn locked_format(content: &Identified) -> Option<&Format> {
    // A container of APFS has volumes that are encrypted, or may have some, if it is described so.
    let is_locked = |format: &&Format| match format.name {
        LUKS | BITLOCKER | CORE_STORAGE => true,
        APFS => format.lock.is_some(),
        _ => false,
    };
    content.formats.iter().find(is_locked)
}

/// Tries keys on volumes, some of which may be found in others that were opened before.
pub struct Unlocking<'a> {
    keys: &'a Keys,
    headers: Vec<Header>,
    unlocked: Unlocked,
    /// Where the content lies of what is open.
    ranges: Vec<ByteRange>,
}

/// A header that is kept apart from its volume, and that a key opened.
struct Header {
    format: String,
    unsealed: luks::Unsealed,
    is_used: bool,
}

impl<'a> Unlocking<'a> {
    /// Begins with the headers that are kept apart from their volumes.
    pub async fn new(keys: &'a Keys) -> Self {
        let mut unlocking = Self { keys, headers: Vec::new(), unlocked: Unlocked::default(), ranges: Vec::new() };
        for header in keys.headers() {
            unlocking.unseal(header).await;
        }
        unlocking
    }

    async fn unseal(&mut self, header: &DetachedHeader) {
        let piece = header.piece();
        let identified = identify(&*piece.device, piece.range).await;
        let format = locked_format(&identified).map_or(LUKS.to_owned(), ToString::to_string);
        let format = format!("{format}, whose header is in {}", header.name);
        match luks::unseal(&piece, self.keys).await {
            Ok(unsealed) => self.headers.push(Header { format, unsealed, is_used: false }),
            Err(why) => self.unlocked.locked.push(alone(format, why)),
        }
    }

    /// Tries the keys on volumes that were found together: on those that are locked, and on those that have no known format. Returns
    /// the layer that shows those that a key opened. A volume that overlaps one that is open is refused, unless it was found in that.
    pub async fn unlock(&mut self, device: &DynDevice, volumes: &[Candidate]) -> OpenedVolumes {
        let mut turn = Turn { device, volumes: Vec::new(), opened: Vec::new() };
        for volume in volumes {
            if let Some(format) = volume.locked_format() {
                self.try_volume(&mut turn, &volume.place, format).await;
            }
        }
        let unnamed: Vec<_> = volumes.iter().filter(|one| !one.content.has_format()).map(|one| &one.place).collect();
        self.try_headers(&mut turn, &unnamed).await;
        if self.keys.veracrypt().next().is_some() {
            for place in unnamed {
                self.try_unnamed(&mut turn, place).await;
            }
        }
        let Turn { mut opened, volumes, .. } = turn;
        opened.sort_by_key(|volume| volume.partition);
        self.ranges.extend(opened.iter().map(OpenedVolume::range));
        self.unlocked.opened.extend(opened);
        OpenedVolumes::new(volumes)
    }

    /// The volumes that are open so far.
    pub fn opened(&self) -> &[OpenedVolume] {
        &self.unlocked.opened
    }

    /// Returns what the keys did.
    pub fn finish(self) -> Unlocked {
        let Self { headers, mut unlocked, .. } = self;
        let unused = headers.into_iter().filter(|header| !header.is_used);
        unlocked.locked.extend(unused.map(|header| alone(header.format, Refusal::NoVolume)));
        unlocked
    }

    async fn try_volume(&mut self, turn: &mut Turn<'_>, place: &Place, format: &Format) {
        let (piece, mut others) = (turn.piece(place), Vec::new());
        let outcome = match (self.is_apart(turn, place.range), format.name) {
            (false, _) => Err(Refusal::Damaged("it overlaps a volume that is open")),
            (true, LUKS) => luks::open(&piece, self.keys).await,
            (true, CORE_STORAGE) => core_storage::open(&piece, self.keys).await,
            (true, APFS) => apfs::open(&piece, self.keys).await.map(|(volume, closed)| {
                others = closed;
                volume
            }),
            (true, _) => beside(bitlocker::open(&piece, self.keys), piece.read_up_to(0, READ_AHEAD_BYTES)).await,
        };
        self.note(turn, place, format.to_string(), outcome);
        if !others.is_empty() {
            self.note(turn, place, format.to_string(), Err(Refusal::Partly { closed: others }));
        }
    }

    /// Tries the passwords of VeraCrypt on a volume without a known format.
    async fn try_unnamed(&mut self, turn: &mut Turn<'_>, place: &Place) {
        if !self.is_apart(turn, place.range) {
            return;
        }
        match veracrypt::open(&turn.piece(place), self.keys).await {
            Ok(Some(Open { volume, other })) => {
                turn.add(place, "VeraCrypt".to_owned(), volume);
                if let Some(which) = other {
                    self.note(turn, place, format!("the {which} of VeraCrypt"), Err(Refusal::Covered));
                }
            }
            Ok(None) => {}
            Err(why) => self.note(turn, place, MAYBE_VERACRYPT.to_owned(), Err(why)),
        }
    }

    /// Tries headers on volumes without a known format: each belongs to those that have one when they are decrypted.
    async fn try_headers(&mut self, turn: &mut Turn<'_>, unnamed: &[&Place]) {
        for index in 0..self.headers.len() {
            for place in unnamed {
                if !self.is_apart(turn, place.range) {
                    continue;
                }
                let header = &mut self.headers[index];
                if turn.has_format(header.unsealed.opened(place.range)).await
                    // Decrypts as the one that was examined.
                    && let Ok(volume) = header.unsealed.opened(place.range)
                {
                    header.is_used = true;
                    turn.add(place, header.format.clone(), volume);
                }
            }
        }
    }

    fn note(&mut self, turn: &mut Turn<'_>, place: &Place, format: String, outcome: Result<Opened>) {
        let Place { partition, inside, .. } = place.clone();
        match outcome {
            Ok(volume) => turn.add(place, format, volume),
            Err(why) => self.unlocked.locked.push(StillLocked { partition, inside, format, why }),
        }
    }

    /// Whether what lies there is not open already: it overlaps nothing that is, or was found in its content.
    fn is_apart(&self, turn: &Turn<'_>, range: ByteRange) -> bool {
        let overlaps = |open: ByteRange| open.intersection(range).is_some();
        let is_inside = |open: &ByteRange| !overlaps(*open) || open.contains(range);
        self.ranges.iter().all(is_inside) && !turn.volumes.iter().any(|volume| overlaps(volume.range()))
    }
}

fn alone(format: String, why: Refusal) -> StillLocked {
    StillLocked { partition: None, inside: String::new(), format, why }
}

/// What is opened of volumes that were found together.
struct Turn<'a> {
    device: &'a DynDevice,
    volumes: Vec<Opened>,
    opened: Vec<OpenedVolume>,
}

impl Turn<'_> {
    fn piece(&self, place: &Place) -> Piece {
        Piece { device: Arc::clone(self.device), range: place.range }
    }

    fn add(&mut self, place: &Place, format: String, volume: Opened) {
        let (range, protector) = (volume.range(), volume.protector().to_owned());
        let Place { partition, inside, .. } = place.clone();
        self.opened.push(OpenedVolume {
            partition,
            inside,
            offset: range.offset,
            size_bytes: range.len,
            format,
            protector,
        });
        self.volumes.push(volume);
    }

    /// Whether the content of a volume has a known format.
    async fn has_format(&self, volume: Result<Opened>) -> bool {
        let Ok(volume) = volume else { return false };
        let range = volume.range();
        let decrypted = OpenedVolumes::new(vec![volume]).over(Arc::clone(self.device));
        identify(&*decrypted, range).await.has_format()
    }
}
