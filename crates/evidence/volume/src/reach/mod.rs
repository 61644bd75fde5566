//! How far a device's partition tables and file systems say that they reach.
//!
//! A copy that was cut short, or is one of several parts, is a valid device of its size: nothing but its content says that
//! something is missing. Nothing here needs to be right for reading; a claim is shown to a person, and decides nothing.

mod superblock;
mod table;

use cheetah_device::{ByteRange, Device};

use crate::nearby::Nearby;

/// The start of a volume in which superblocks are looked for: all but those of swap and old RAID lie in it.
const START_BYTES: u64 = 72 << 10;
/// The start of a volume that is read if not all of that can be.
const SECTORS_BYTES: u64 = 4 << 10;
/// The maximum number of partitions whose start is looked at.
const VOLUMES_MAX: usize = 32;

/// Something that says where it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What says so, such as `partition 2 of the GPT`.
    pub what: String,
    /// The end, in bytes from the start of the device.
    pub end_bytes: u64,
}

impl Claim {
    fn new(what: impl Into<String>, end_bytes: u64) -> Self {
        Self { what: what.into(), end_bytes }
    }

    /// Returns a sentence about it if it reaches beyond a device of `size` bytes.
    pub fn beyond(&self, size: u64) -> Option<String> {
        let Self { what, end_bytes } = self;
        let more = end_bytes.checked_sub(size).filter(|more| *more > 0)?;
        Some(format!(
            "{what} reaches to byte {end_bytes}, which is {more} bytes beyond the end of the source (it has {size}): the \
             source may be cut short, or be only a part"
        ))
    }
}

/// How to look for claims.
#[derive(Debug, Clone, Copy)]
pub struct ReachOptions {
    /// Bytes in a sector, if known; otherwise the sizes in use are tried.
    pub sector_bytes: Option<u32>,
    /// Only bytes before this offset are read.
    pub read_up_to: u64,
}

impl Default for ReachOptions {
    /// Any sector size; all of the device.
    fn default() -> Self {
        Self { sector_bytes: None, read_up_to: u64::MAX }
    }
}

/// Adds to `claims` what the partition tables and the file systems of `device` claim, in no particular order, as it is found: a look that is
/// given up leaves that. What cannot be read claims nothing.
pub async fn add_claims(device: &dyn Device, options: ReachOptions, claims: &mut Vec<Claim>) {
    let look = Look { device: &Nearby::new(device), options };
    let whole = look.volume(0).await;
    claims.extend(whole.iter().map(|found| found.claim("", 0)));
    // The boot sector of such a file system has the signature of a partition table.
    if whole.as_ref().is_some_and(|found| found.is_boot_sector) {
        return;
    }
    let tables = table::read(&look).await;
    claims.extend(tables.claims);
    for (name, start) in tables.volumes.into_iter().take(VOLUMES_MAX) {
        if let Some(found) = look.volume(start).await {
            claims.push(found.claim(&format!(" in {name}"), start));
        }
    }
}

/// Returns a sentence for each claim that reaches beyond the end of a device of `size` bytes, the farthest first.
pub fn beyond_end(mut claims: Vec<Claim>, size: u64) -> Vec<String> {
    claims.sort_by_key(|claim| std::cmp::Reverse(claim.end_bytes));
    claims.iter().filter_map(|claim| claim.beyond(size)).collect()
}

/// The number of bytes that [`begins`] needs.
pub const BEGINS_BYTES: u64 = START_BYTES;

/// Whether the beginning of a file is that of a disk or a volume: with a partition table or a file system of its own.
pub fn begins(start: &[u8]) -> bool {
    superblock::find(start).is_some() || table::is_any(start)
}

/// Reads parts of a device.
struct Look<'a> {
    device: &'a dyn Device,
    options: ReachOptions,
}

impl Look<'_> {
    /// Reads a range, or what of it the device has; `None` if it cannot be read, or must not.
    async fn read(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let end = self.device.geometry().size.min(self.options.read_up_to);
        let range =
            ByteRange::new(offset, len).intersection(ByteRange::new(0, end)).filter(|range| !range.is_empty())?;
        self.device.read(range).await.ok().map(|data| data.into_bytes().into())
    }

    /// Looks for a file system that starts at `offset`.
    async fn volume(&self, offset: u64) -> Option<superblock::Found> {
        let start = match self.read(offset, START_BYTES).await {
            Some(start) => Some(start),
            None => self.read(offset, SECTORS_BYTES).await,
        };
        superblock::find(&start?)
    }
}
