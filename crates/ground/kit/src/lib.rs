//! Small functions that every crate may need, and that know nothing of any of them.

#![deny(unsafe_code)]

pub mod clock;
mod crc64;
pub mod disks;
#[allow(unsafe_code)]
pub mod locked;
pub mod number;
pub mod percent;
pub mod random;
mod rename;

pub use crc64::crc64_nvme;
pub use rename::{rename_new, rename_new_at};
