//! Arrays of Linux's software RAID (md), put together from their members in a device. Nothing is written.
//!
//! [`assemble()`] looks for members in given places of a device: partitions, opened volumes. It takes the newest superblock of each
//! array, and returns the arrays of which enough members are there. The others are named, with the reason.
//!
//! Superblocks of the versions 0.90, 1.0, 1.1 and 1.2 are read, and the levels linear, 0, 1, 4, 5, 6, and 10 with near copies are opened.
//! Other levels and layouts, an array that was being reshaped, one with a write journal, and one with a missing member whose parity
//! may be old are refused by name.
//!
//! Superblocks are evidence, and may be damaged or hostile: checksums are compared, every number is checked, and everything has a limit.
//!
//! | module | content |
//! |---|---|
//! | `superblock` | what a superblock says; `version_0` and `version_1` parse it |
//! | `level` | the levels and layouts that are supported |
//! | `members` | which of the superblocks that were found are members in use |
//! | `resolve` | where the bytes of an array lie |
//! | `geometry` | where the chunks of an array with redundancy lie on its members |
//! | `redundant` | an array with redundancy as a device |
//! | `array` | an array as a device |
//! | `assemble` | reads superblocks, and puts arrays together; beside it, only `redundant` does I/O |

mod array;
mod assemble;
mod geometry;
mod level;
mod members;
mod redundant;
mod refused;
mod resolve;
mod superblock;
#[cfg(test)]
mod tests;
mod version_0;
mod version_1;

pub use self::array::Array;
pub use self::assemble::{Assembly, assemble};
pub use self::refused::{Defect, LeftOut, NotOpened, Obstacle, Remark, Unfit, Why};

pub(crate) use self::assemble::assemble_unchecked;

/// A sector, in which md counts whatever the sectors of the disk are, in bytes.
const SECTOR_BYTES: u64 = 512;
/// The number at the start of every superblock.
const MAGIC: u32 = 0xa92b_4efc;
