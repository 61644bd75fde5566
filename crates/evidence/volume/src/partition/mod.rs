//! The partitions of a device, from its partition tables.
//!
//! A table is evidence, and may be damaged or hostile. It is read in bounded pieces, every number is checked, and a
//! defect costs some partitions and a remark: the whole device stays readable.
//!
//! A disk may have several tables: a hybrid of MBR and GPT, a backup, remains of an earlier table. One of them is in
//! use, by the rules of [`choice`]; places that only another one names are kept apart, and remarks say so. Nothing is
//! dropped silently: a table that cannot be read or used is a remark, too.
//!
//! Tables count in sectors. If the size of a sector is known, they are counted in it. If not, 512 and 4096 bytes are
//! tried, and known formats at the places named decide; where they do not, a remark says that it is ambiguous.

mod apple;
mod bsd;
mod choice;
mod defect;
mod doubt;
mod gpt;
mod kinds;
mod mbr;
mod sun;

use std::fmt;

use cheetah_device::{ByteRange, Data, Device};
use cheetah_error::Next;

use cheetah_device::le::{u16_at, u32_at, u64_at};

pub use self::defect::Defect;
pub use self::doubt::{BadCopy, BadGpt, Doubt};
pub use self::kinds::guid_text;
use crate::nearby::Nearby;

/// The maximum number of partitions: more than any tool creates, and few enough for a directory.
const PARTITIONS_MAX: usize = 256;
/// The sizes of a sector that are tried if it is not known, in this order.
const SECTOR_SIZES: [u64; 2] = [512, 4096];

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number as in Linux: its index in the table, from 1; logical partitions of an MBR from 5.
    pub number: u32,
    /// Its range, within the device.
    pub range: ByteRange,
    /// Its range according to the table, which may reach beyond the device.
    pub recorded: ByteRange,
    /// The type and the name that the table records.
    pub description: String,
    /// The size of a sector that its table counts in, in bytes.
    pub sector_bytes: u64,
}

/// Something that a reader of a table's partitions should know. As text, it is one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// What is in doubt.
    pub doubt: Doubt,
    /// Whether partitions may be missing, or be others: a table is damaged, or cannot be read.
    pub is_gap: bool,
    /// What the reader can do, if there is something.
    pub next: Option<Next>,
}

impl Remark {
    fn note(doubt: Doubt) -> Self {
        Self { doubt, is_gap: false, next: None }
    }

    fn gap(doubt: Doubt) -> Self {
        Self { doubt, is_gap: true, next: None }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.doubt, f)
    }
}

/// The content of the partition tables of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionTables {
    /// The partitions of the table in use, in its order; none without a valid table.
    pub partitions: Vec<Partition>,
    /// Places that another table names, or the same one if its sectors have another size, and that hold a known format.
    pub others: Vec<Partition>,
    /// Partitions that lie beyond the device.
    pub beyond: Vec<Partition>,
    /// Doubts, defects and ambiguities.
    pub remarks: Vec<Remark>,
}

/// A table that was found.
#[derive(Debug, Clone)]
struct Table {
    /// Its kind, with an article: "an MBR".
    name: &'static str,
    sector_bytes: u64,
    partitions: Vec<Partition>,
}

/// The size of a device's sectors in bytes, and how it is known. One that no disk can have counts as unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SectorSize {
    /// It is not known.
    #[default]
    Unknown,
    /// The source records it, perhaps wrongly: an image of a disk that was read through a bridge.
    Recorded(u32),
    /// The user says so: no other size is tried.
    Given(u32),
}

impl From<Option<u32>> for SectorSize {
    fn from(recorded: Option<u32>) -> Self {
        recorded.map_or(Self::Unknown, Self::Recorded)
    }
}

impl SectorSize {
    /// The size that the user gives, or else the one that the source records.
    pub fn given_or(given: Option<u32>, recorded: Option<u32>) -> Self {
        given.map_or_else(|| recorded.into(), Self::Given)
    }

    /// The size, if it is known, and one that sectors can have.
    fn known(self) -> Option<u64> {
        let (Self::Recorded(bytes) | Self::Given(bytes)) = self else { return None };
        Some(u64::from(bytes)).filter(|bytes| bytes.is_power_of_two() && (512..=65536).contains(bytes))
    }
}

/// Reads the partitions of `device`, in table order; none without a valid table. Only as much is read as that takes; remarks go to the log.
pub async fn read_partitions(device: &dyn Device, sectors: impl Into<SectorSize>) -> Vec<Partition> {
    let tables = choice::read_tables(&Nearby::with_ends(device).await, sectors.into(), choice::Extent::InUse).await;
    for remark in &tables.remarks {
        tracing::info!("{remark}");
    }
    tables.partitions
}

/// Reads the partition tables of `device`.
pub async fn read_tables(device: &dyn Device, sectors: impl Into<SectorSize>) -> PartitionTables {
    choice::read_tables(&Nearby::with_ends(device).await, sectors.into(), choice::Extent::All).await
}

impl Partition {
    /// A partition of a table that counts in sectors of `sector_bytes`, as recorded.
    fn recorded(number: u32, recorded: ByteRange, description: String, sector_bytes: u64) -> Self {
        Self { number, range: recorded, recorded, description, sector_bytes }
    }

    /// Whether its table says that it is a physical volume of LVM.
    pub fn is_for_lvm(&self) -> bool {
        self.description.starts_with(kinds::LVM)
    }

    /// Whether its table says that it is a member of an array of Linux.
    pub fn is_for_linux_raid(&self) -> bool {
        self.description.starts_with(kinds::LINUX_RAID)
    }

    /// The part of it within a device of `size` bytes, if any.
    fn clipped(&self, size: u64) -> Option<Self> {
        let range = self.recorded.intersection(ByteRange::new(0, size)).filter(|range| !range.is_empty())?;
        Some(Self { range, ..self.clone() })
    }
}

/// The bytes from one sector on; `None` beyond the greatest offset.
fn sectors(first: u64, count: u64, sector_bytes: u64) -> Option<ByteRange> {
    let start = first.checked_mul(sector_bytes)?;
    let end = first.checked_add(count)?.checked_mul(sector_bytes)?;
    (start < end).then(|| ByteRange::between(start, end))
}

/// Reads a small range of the device.
async fn read(device: &dyn Device, range: ByteRange) -> Result<Vec<u8>, Defect> {
    let data: Data = device.read(range).await?;
    if data.len() != range.len {
        return Err(Defect::CutShort { range, bytes: data.len() });
    }
    Ok(data.into_bytes().into())
}

/// A name in a table: its text up to the first zero, without what would break a line.
fn name(text: impl IntoIterator<Item = char>) -> String {
    let text = text.into_iter().take_while(|one| *one != '\0');
    text.map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect::<String>().trim().to_owned()
}

/// A description: a type, and a name unless it is empty.
fn described(kind: &str, name: &str) -> String {
    if name.is_empty() { kind.to_owned() } else { format!("{kind}, {name}") }
}
