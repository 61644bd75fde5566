//! Partitions ([`partition`]), logical volumes ([`lvm`]), arrays ([`md`]), shadow copies ([`vss`]), encrypted volumes of Apple's systems
//! ([`apple`]), and the positions of file systems' metadata and files' content ([`survey`]).
//!
//! Nothing here presents files. Tools interpret the file system themselves; surveys only predict their reads, so that
//! the data can be prefetched. A wrong prediction costs time, never a byte.

#![forbid(unsafe_code)]

pub mod apple;
pub mod assembly;
mod checks;
mod ext;
mod fat;
pub mod foresight;
pub mod formats;
pub mod lvm;
pub mod md;
mod nearby;
mod ntfs;
pub mod offline;
pub mod partition;
mod parts;
pub mod reach;
pub mod recognise;
pub mod survey;
pub mod vss;
