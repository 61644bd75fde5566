//! Small functions that every crate may need, and that know nothing of any of them.
//!
//! What differs by operating system stands in `os`. The other modules are the same everywhere.

#![deny(unsafe_code)]

pub mod authority;
mod blocks;
pub mod clock;
mod crc64;
pub mod disks;
pub mod errno;
pub mod file;
pub mod folder;
#[allow(unsafe_code)]
pub mod locked;
pub mod machine;
pub mod machine_memory;
#[allow(unsafe_code)]
pub mod mapping;
pub mod md5;
pub mod md5_sha;
pub mod named;
pub mod number;
#[allow(unsafe_code)]
mod os;
pub mod path;
pub mod percent;
pub mod process;
pub mod random;
mod rename;
pub mod socket;
#[cfg(any(target_os = "freebsd", target_os = "macos"))]
pub mod storage;
pub mod thread;
#[allow(unsafe_code)]
pub mod wiping;

pub use crc64::{crc64_nvme, page_digest};
pub use rename::rename_new;
