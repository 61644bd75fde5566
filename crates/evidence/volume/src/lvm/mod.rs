//! Logical volumes of LVM2, put together from the physical volumes in a device. Nothing is written.
//!
//! [`assemble()`] looks for physical volumes in given places of a device: partitions, opened volumes. It takes the newest metadata of
//! each volume group, and returns the logical volumes that lie wholly on the physical volumes in the device. The others are named,
//! with the reason.
//!
//! Linear and striped volumes are opened. Thin ones, snapshots, mirrors, RAID, caches and VDO are refused by name.
//!
//! Metadata is evidence, and may be damaged or hostile: checksums are compared, every number is checked, and everything has a limit.
//!
//! | module | content |
//! |---|---|
//! | `label` | the label of a physical volume, and the header of a metadata area |
//! | `text` | the syntax of the metadata |
//! | `group` | a volume group, as its metadata describes it |
//! | `resolve` | where the bytes of a logical volume lie |
//! | `volume` | a logical volume as a device |
//! | `assemble` | reads physical volumes, and puts groups together; the other modules do no I/O |

mod assemble;
mod group;
mod label;
mod refused;
mod resolve;
#[cfg(test)]
mod tests;
mod text;
mod volume;

pub use self::assemble::{Assembly, assemble};
pub use self::refused::{Defect, NotOpened, Why};
pub use self::volume::LogicalVolume;

pub(crate) use self::assemble::assemble_unchecked;

/// A sector, in which LVM2 counts whatever the sectors of the disk are, in bytes.
const SECTOR_BYTES: u64 = 512;
