//! Why a partition table cannot be used.

use cheetah_device::{ByteRange, Error as DeviceError, Size};

/// Why a partition table, or a part of it, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// There is no such table.
    #[error("there is none")]
    Absent,
    /// The device fails.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device returns another number of bytes.
    #[error("{range} came back as {bytes} bytes")]
    CutShort {
        /// The range that was read.
        range: ByteRange,
        /// The number of bytes that came.
        bytes: u64,
    },
    /// A block of an Apple map is not one of its entries.
    #[error("block {block} of the map, of {blocks}, is not an entry of it")]
    NoEntry {
        /// The number of the block.
        block: u32,
        /// The number of blocks of the map.
        blocks: u32,
    },
    /// The header of a GPT has an impossible length.
    #[error("a header cannot be {0} bytes long")]
    HeaderBytes(usize),
    /// The header of a GPT does not match its checksum.
    #[error("the checksum of the header is wrong")]
    HeaderChecksum,
    /// The header of a GPT is that of another sector.
    #[error("the header in sector {sector} says it is in sector {recorded}")]
    OtherSector {
        /// The sector that it is in.
        sector: u64,
        /// The sector that it says it is in.
        recorded: u64,
    },
    /// The entries of a GPT have an impossible length.
    #[error("an entry cannot be {0} bytes long")]
    EntryBytes(u32),
    /// The entries of a GPT are more than any tool writes.
    #[error("a table of {} is refused", Size(*.0))]
    TableBytes(u64),
    /// The entries of a GPT are at an offset that no device has.
    #[error("the entries are beyond any device")]
    BeyondAnyDevice,
    /// The entries of a GPT are beyond the end of the device.
    #[error("its entries are beyond the end")]
    BeyondEnd,
    /// The entries of a GPT do not match their checksum.
    #[error("the checksum of the entries is wrong")]
    EntriesChecksum,
    /// There are too many logical partitions.
    #[error("there are more than {0}")]
    TooManyLogical(u32),
    /// A chain of boot records is a loop.
    #[error("the chain of boot records returns to sector {0}")]
    Loop(u64),
    /// The device ends before a boot record.
    #[error("the source ends before the boot record in sector {0}")]
    RecordBeyondEnd(u64),
    /// There is something else where a boot record should be.
    #[error("sector {0} is not a boot record")]
    NoRecord(u64),
}
