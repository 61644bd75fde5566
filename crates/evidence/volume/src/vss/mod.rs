//! Shadow copies of NTFS volumes (Volume Shadow Copy Service, VSS): what a volume was at an earlier time. Nothing is written.
//!
//! While a shadow copy is the newest one, Windows keeps each block of 16 KiB of the volume in its store before that is overwritten for
//! the first time. So a block of a shadow copy is looked for in its own store, then in those of the later ones, in their order; if none has
//! it, it is as the volume has it now.
//!
//! [`catalog()`] lists the shadow copies of a volume; [`open()`] reads the lists of blocks in the stores of some, and returns each as a
//! device over the volume.
//!
//! What a store says of a block:
//!
//! | descriptor | meaning |
//! |---|---|
//! | plain | the block is kept at a place of the volume. Of several, the last one counts |
//! | forwarder | the block was not kept but moved: it is where another block was then, in the later stores or in the volume. What is kept of that other block later is this one |
//! | overlay | sectors that were written to the shadow copy itself when it was made. The bits of several are joined, at the place of the first. Older shadow copies do not see them |
//! | not used | nothing |
//!
//! Free space is not kept: the bitmaps of a store say which blocks were not in use. In the newest shadow copy, they read as zeros, as in
//! libvshadow (Windows leaves the buffer of the reader as it is); in an older one, as whatever was there later.
//!
//! The structures are evidence, and may be damaged or hostile. Each block of them says where it lies and what it is, which is compared;
//! every number is checked, and everything has a limit. A store that is damaged is not used, and nor are the older ones, which need it.
//!
//! | module | content |
//! |---|---|
//! | `block` | the header of the volume, and the headers of blocks |
//! | `entries` | the entries of the catalog, and what the header of a store says |
//! | `store` | what a store says of each block |
//! | `bitmap` | which blocks were not in use |
//! | `snapshot` | a shadow copy as a device |
//! | `chain` | reads a list of blocks |
//! | `catalog` | reads the catalog |
//! | `open` | reads stores; the modules without I/O are those above `chain`, but `snapshot` |

mod bitmap;
mod block;
mod catalog;
mod chain;
mod entries;
mod open;
mod refused;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;

pub use self::catalog::{Catalog, catalog};
pub use self::entries::ShadowCopy;
pub use self::open::{Budget, NotOpened, Opened, open};
pub use self::refused::{Damage, Defect, Part};
pub use self::snapshot::Snapshot;

/// The unit in which a volume is kept, and that of all structures, in bytes.
const BLOCK_BYTES: u64 = 16 << 10;
/// The unit of what was written to a shadow copy itself, in bytes.
const SECTOR_BYTES: u64 = 512;
