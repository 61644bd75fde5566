//! The volumes in a source, one in another: encrypted volumes that keys open, arrays of Linux's software RAID, logical volumes of LVM2,
//! partitions in these, and shadow copies of NTFS volumes.
//!
//! They have one rule: a volume that is found is looked at again, like the source itself (`find`). What that finds is a stack of
//! steps over the device of the source. An opened volume reads decrypted where it lies encrypted. An array or a logical volume that
//! lies in one piece is read where it lies; the others get a place behind the end of the device, which each such step makes longer.
//! So each volume has an offset for tools that want one, and a step does not care what is below it.
//!
//! | module | content |
//! |---|---|
//! | `volume` | a volume that was found |
//! | `copies` | the shadow copies that are asked for, and those that were found |
//! | `found` | all of them, and the stack over the source |
//! | `step` | a step of the stack as a device |
//! | `start` | where a look begins |
//! | `find` | the look; `limits` bounds it |

mod copies;
mod find;
mod found;
mod limits;
mod not_shown;
mod start;
mod step;
#[cfg(test)]
mod tests;
mod volume;

pub use self::copies::{ListedCopy, ShadowCopies};
pub(crate) use self::find::{How, find};
pub use self::found::{StackOutcome, VolumeStack};
pub use self::not_shown::NotShown;
pub(crate) use self::start::{Start, by_table};
pub use self::volume::{Assembled, Content, InnerVolume};
