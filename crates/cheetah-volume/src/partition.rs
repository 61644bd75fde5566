//! The partitions of a device, from its partition table.
//!
//! The table is evidence, and may be damaged or hostile. It is read in bounded pieces, every number is checked, and a
//! defect costs some partitions and a warning in the log: the whole device stays readable.

mod gpt;
mod mbr;

use cheetah_device::{ByteRange, Data, Device};

use cheetah_device::le::{u32_at, u64_at};

/// The maximum number of partitions: more than any tool creates, and few enough for a directory.
const PARTITIONS_MAX: usize = 256;

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Its number as in Linux: its index in the table, from 1; logical partitions of an MBR from 5.
    pub number: u32,
    /// Its range, within the device.
    pub range: ByteRange,
}

/// Reads the partitions of `device`, in table order (MBR with logical partitions, or GPT); none without a valid table.
pub async fn read_partitions(device: &dyn Device) -> Vec<Partition> {
    let found = match mbr::read_table(device).await {
        Ok(mbr::Table::None) => Vec::new(),
        Ok(mbr::Table::Partitions(partitions)) => partitions,
        Ok(mbr::Table::Protective) => gpt::read_table(device).await.unwrap_or_else(|why| {
            tracing::warn!("no partitions: the GPT cannot be used: {why}");
            Vec::new()
        }),
        Err(why) => {
            tracing::warn!("no partitions: the partition table cannot be read: {why}");
            Vec::new()
        }
    };
    let size = device.geometry().size;
    let mut partitions: Vec<_> = found.into_iter().filter_map(|partition| partition.clipped(size)).collect();
    if partitions.len() > PARTITIONS_MAX {
        tracing::warn!("{} partitions in the table; only the first {PARTITIONS_MAX} are shown", partitions.len());
        partitions.truncate(PARTITIONS_MAX);
    }
    partitions
}

impl Partition {
    /// The part of it within a device of `size` bytes, if any.
    fn clipped(self, size: u64) -> Option<Self> {
        let Self { number, range } = self;
        let Some(inside) = range.intersection(ByteRange::new(0, size)) else {
            tracing::warn!("partition {number} at {range} lies outside the device of {size} bytes; left out");
            return None;
        };
        if inside != range {
            tracing::warn!("partition {number} at {range} reaches beyond the device of {size} bytes; cut to {inside}");
        }
        Some(Self { number, range: inside })
    }
}

/// Reads a small range of the device, or returns the reason it cannot be read.
async fn read(device: &dyn Device, range: ByteRange) -> Result<Vec<u8>, String> {
    let data: Data = device.read(range).await.map_err(|error| error.to_string())?;
    if data.len() != range.len {
        return Err(format!("{range} came back as {} bytes", data.len()));
    }
    Ok(data.into_bytes().into())
}
