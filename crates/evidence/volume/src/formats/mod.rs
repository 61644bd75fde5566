//! Names formats by their signatures: file systems, members of RAIDs and pools, encrypted volumes, swap.
//!
//! A volume that no tool at hand can list still has a name that an examiner needs to know. The signatures
//! (`signatures`) are those of libblkid and a few more; formats whose number is short are decided by more of their
//! structure (`structure`).

mod lock;
mod signatures;
mod structure;

use std::fmt;

use cheetah_device::{ByteRange, Device, Result};
use futures::future::{join_all, try_join_all};

pub use self::lock::{Lock, Protector};
pub use self::signatures::{APFS, BITLOCKER, LUKS, LVM2};
use self::signatures::{At, SIGNATURES, Signature};
pub use self::structure::CORE_STORAGE;
use crate::apple::Flaw;
use crate::nearby::Nearby;

/// The start of a volume that is examined: up to and including the superblocks at 64 KiB.
const HEAD_BYTES: u64 = 72 << 10;
/// The part of it that is read first. It says whether the volume is locked, and where the description of the lock is.
const START_BYTES: u64 = 4 << 10;
/// More than this is read in several requests: a new connection delivers 14 kB in its first round trip, and there may be several.
const REQUEST_BYTES: u64 = 8 << 10;
/// The end of a volume that is examined: where most members of RAIDs have their superblock.
const TAIL_BYTES: u64 = 16 << 10;
/// Superblocks further behind: UFS, VMFS.
const FURTHER: [u64; 3] = [256 << 10, 1 << 20, 2 << 20];
const FURTHER_BYTES: u64 = 2 << 10;
/// The superblock of Linux's software RAID 0.90 begins in the last 64 KiB that are aligned to 64 KiB.
const MD_ALIGNMENT: u64 = 64 << 10;
/// The part of an external log of XFS in which a record begins: the longest record has as many bytes.
const XFS_LOG_BYTES: u64 = 256 << 10;
/// ZFS's labels, two at each end, and the part of each that holds the uberblocks.
const ZFS_LABEL_BYTES: u64 = 256 << 10;
const ZFS_UBERBLOCKS: u64 = 128 << 10;
/// Where Promise's controllers put their record, in sectors from the end.
const PROMISE_SECTORS: [u64; 13] = [63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087];
const PROMISE: &[u8] = b"Promise Technology, Inc.";
/// Where some controllers put a record in the industry's format, in sectors from the end.
const DDF_ANCHOR_SECTOR: u64 = 257;

/// A format that a volume may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Its name, for people.
    pub name: &'static str,
    /// The kind of file system, if it is one that triage lists: `ntfs`, `fat`, `exfat`, `ext`, `ufs`, `hfs` or
    /// `iso9660`; else empty.
    pub family: &'static str,
    /// How it is locked, if it is encrypted in a way that is known here.
    pub lock: Option<Lock>,
}

impl Format {
    /// Whether it is that of a member of an array of Linux.
    pub fn is_linux_raid(&self) -> bool {
        self.name.starts_with(structure::LINUX_RAID)
    }

    /// Whether nothing but a record that may lie anywhere says so: it may be left of what was there before.
    pub fn may_be_remains(&self) -> bool {
        self.name == structure::XFS_LOG
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.lock.as_ref().map_or(Ok(()), |lock| write!(f, " ({lock})"))
    }
}

/// The outcome of an examination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identified {
    /// The formats whose signatures are there; mostly one. A member of a mirror also looks like the file system in it.
    pub formats: Vec<Format>,
    /// Why a part of the volume could not be examined, if so.
    pub unread: Option<String>,
}

impl Identified {
    /// Whether a format is there that cannot be remains ([`Format::may_be_remains`]).
    pub fn has_format(&self) -> bool {
        !self.formats.iter().all(Format::may_be_remains)
    }

    fn add(&mut self, name: &'static str, family: &'static str) {
        if !self.formats.iter().any(|known| known.name == name) {
            self.formats.push(Format { name, family, lock: None });
        }
    }

    /// Adds the formats whose signatures are in the head or the tail of a volume.
    fn add_signatures(&mut self, head: &[u8], tail: &[u8]) {
        for one in SIGNATURES.iter().filter(|one| is_there(one, head, tail)) {
            self.add(one.name, one.family);
        }
    }

    /// Takes the locks that were described before, and why a part could not be examined.
    fn take_locks(&mut self, early: Self) {
        for known in early.formats {
            if let Some(format) = self.formats.iter_mut().find(|format| format.name == known.name) {
                format.lock = known.lock;
            }
        }
        self.unread = self.unread.take().or(early.unread);
    }

    /// The bytes of a piece; none if it could not be read, which is noted.
    fn noted(&mut self, piece: Result<Vec<u8>>) -> Vec<u8> {
        piece.unwrap_or_else(|error| {
            self.unread.get_or_insert_with(|| error.to_string());
            Vec::new()
        })
    }
}

/// Names the formats of a volume. Reads some 100 KiB, and a few hundred more of a volume without a known signature, or of an
/// encrypted one of Apple's.
pub async fn identify(device: &dyn Device, volume: ByteRange) -> Identified {
    let (mut found, mut early) = (Identified::default(), Identified::default());
    let pieces = Pieces { device, volume };
    let tail_at = volume.len.saturating_sub(TAIL_BYTES);
    let old_md_at = (volume.len / MD_ALIGNMENT).saturating_sub(1) * MD_ALIGNMENT;
    // At the same time: one behind the other would take some round trips more on a link.
    let (start, tail, old_md) = futures::join!(
        pieces.try_read(0, START_BYTES),
        pieces.try_read_by_requests(tail_at, TAIL_BYTES),
        pieces.try_read(old_md_at, 512),
    );
    let (mut head, tail, old_md) = (found.noted(start), found.noted(tail), found.noted(old_md));
    early.add_signatures(&head, &[]);
    early.formats.retain(|format| matches!(format.name, LUKS | BITLOCKER));
    // The description of a lock is read first, since a key waits for it.
    let ((), rest, further) = futures::join!(
        describe_locks(&pieces, &head, &mut early),
        pieces.try_read_by_requests(START_BYTES, HEAD_BYTES - START_BYTES),
        join_all(FURTHER.map(|at| pieces.try_read(at, FURTHER_BYTES))),
    );
    // Without its start the rest would be taken for it.
    let rest = found.noted(rest);
    if !head.is_empty() {
        head.extend(rest);
    }
    found.add_signatures(&head, &tail);
    structure::of_head(&head, &mut |name, family| found.add(name, family));
    structure::of_tail(&tail, volume.len, &mut |name| found.add(name, ""));
    for (at, piece) in FURTHER.into_iter().zip(further) {
        let piece = found.noted(piece);
        structure::of_further(at, &piece, &mut |name, family| found.add(name, family));
    }
    if volume.len >= 2 * MD_ALIGNMENT && structure::is_md_old(&old_md) {
        found.add(structure::MD_0_90, "");
    }
    let nearby = Pieces { device: &Nearby::new(device), volume };
    if found.formats.is_empty() {
        search_further(&nearby, &head, &mut found).await;
    }
    found.take_locks(early);
    describe_locks(&nearby, &head, &mut found).await;
    found
}

/// Adds how encrypted volumes are locked, where that is not known.
async fn describe_locks(pieces: &Pieces<'_>, head: &[u8], found: &mut Identified) {
    for index in 0..found.formats.len() {
        if found.formats[index].lock.is_some() {
            continue;
        }
        found.formats[index].lock = match found.formats[index].name {
            LUKS => {
                let header = pieces.read(0, lock::header_bytes(head), found).await;
                lock::parse_luks(&header)
            }
            BITLOCKER => describe_bitlocker(pieces, head, found).await,
            CORE_STORAGE => noted(lock::describe_core_storage(pieces.device, pieces.volume).await, found),
            APFS => known_or_not(lock::describe_apfs(pieces.device, pieces.volume).await, found),
            _ => None,
        };
    }
}

/// The description; none if a part of the volume could not be read, which is noted.
fn noted(lock: std::result::Result<Option<Lock>, Flaw>, found: &mut Identified) -> Option<Lock> {
    lock.unwrap_or_else(|flaw| {
        found.unread.get_or_insert_with(|| flaw.to_string());
        None
    })
}

/// The description; where there is none because of a flaw, one that says so. That a part of the volume could not be read is noted.
fn known_or_not(lock: std::result::Result<Option<Lock>, Flaw>, found: &mut Identified) -> Option<Lock> {
    lock.unwrap_or_else(|flaw| {
        if matches!(flaw, Flaw::Unread(_)) {
            found.unread.get_or_insert_with(|| flaw.to_string());
        }
        Some(Lock::unknown(&flaw))
    })
}

async fn describe_bitlocker(pieces: &Pieces<'_>, head: &[u8], found: &mut Identified) -> Option<Lock> {
    for at in lock::find_bitlocker(head) {
        let mut block = pieces.read(at, lock::BLOCK_BYTES, found).await;
        if lock::is_longer(&block) {
            block = pieces.read(at, lock::BLOCK_BYTES_MAX, found).await;
        }
        if let Some(lock) = lock::parse_bitlocker(&block) {
            return Some(lock);
        }
    }
    None
}

/// Looks in the places that only few formats use.
async fn search_further(pieces: &Pieces<'_>, head: &[u8], found: &mut Identified) {
    let end = pieces.volume.len;
    // A log begins with the rest of a record if it was written around its end.
    if structure::has_xfs_log_record(head) {
        return found.add(structure::XFS_LOG, "");
    }
    let rest = pieces.read(HEAD_BYTES, XFS_LOG_BYTES - HEAD_BYTES, found).await;
    if structure::has_xfs_log_record(&rest) {
        return found.add(structure::XFS_LOG, "");
    }
    for label in [0, ZFS_LABEL_BYTES, end.saturating_sub(2 * ZFS_LABEL_BYTES), end.saturating_sub(ZFS_LABEL_BYTES)] {
        // ZFS aligns its labels to their size.
        let at = label / ZFS_LABEL_BYTES * ZFS_LABEL_BYTES + ZFS_UBERBLOCKS;
        let uberblocks = pieces.read(at, ZFS_LABEL_BYTES - ZFS_UBERBLOCKS, found).await;
        if structure::has_uberblocks(&uberblocks) {
            return found.add(structure::ZFS, "");
        }
    }
    for sectors in PROMISE_SECTORS {
        if pieces.sector_before_end(sectors, found).await.starts_with(PROMISE) {
            return found.add("member of a RAID of a Promise controller", "");
        }
    }
    if pieces.sector_before_end(DDF_ANCHOR_SECTOR, found).await.starts_with(&structure::DDF) {
        found.add(structure::DDF_NAME, "");
    }
}

fn is_there(one: &Signature, head: &[u8], tail: &[u8]) -> bool {
    let is_at = |bytes: &[u8], at: usize| bytes.get(at..).is_some_and(|rest| rest.starts_with(one.magic));
    match one.at {
        At::Start(at) => is_at(head, at),
        // A disk may have sectors of either size.
        At::End { sectors, inside } => [512, 4096]
            .into_iter()
            .filter_map(|sector| tail.len().checked_sub(sectors * sector))
            .any(|at| is_at(tail, at + inside)),
    }
}

/// A volume, read in pieces.
struct Pieces<'a> {
    device: &'a dyn Device,
    volume: ByteRange,
}

impl Pieces<'_> {
    /// The bytes from `at`, fewer at the end.
    async fn try_read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let len = len.min(self.volume.len.saturating_sub(at));
        if len == 0 {
            return Ok(Vec::new());
        }
        Ok(self.device.read(ByteRange::new(self.volume.offset + at, len)).await?.into_bytes().into())
    }

    /// The same, in several requests at the same time.
    async fn try_read_by_requests(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let requests = ByteRange::new(at, len).split_at_multiples(REQUEST_BYTES);
        Ok(try_join_all(requests.map(|part| self.try_read(part.offset, part.len))).await?.concat())
    }

    /// The bytes from `at`; none if they cannot be read, which is noted.
    async fn read(&self, at: u64, len: u64, found: &mut Identified) -> Vec<u8> {
        let piece = self.try_read(at, len).await;
        found.noted(piece)
    }

    /// The sector that lies `sectors` before the end.
    async fn sector_before_end(&self, sectors: u64, found: &mut Identified) -> Vec<u8> {
        match (self.volume.len / 512).checked_sub(sectors) {
            Some(sector) => self.read(sector * 512, 512, found).await,
            None => Vec::new(),
        }
    }
}
