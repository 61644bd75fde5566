//! Attaching a device to this machine.
//!
//! [`mount`] shows a device as files ([`fuse`]): the whole device as `NAME.raw`, and each partition in its partition table
//! ([`cheetah_volume::partition`]) as `NAME.pN.raw`. Tools that read raw images, and loop devices, can use them.
//!
//! [`nbd`] makes it a block device of the kernel, if the kernel has the module `nbd`; `ublk` does the same with the module
//! `ublk_drv`, if this crate has the feature `ublk`.
//!
//! Other systems than Linux have the same functions, which fail with [`Error::NotOffered`].

#![deny(unsafe_code)]

pub mod error;
mod options;

#[cfg(target_os = "linux")]
pub mod block;
#[cfg(target_os = "linux")]
mod blocking;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
pub mod fuse;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
pub mod nbd;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod task;
#[cfg(all(target_os = "linux", feature = "ublk"))]
pub mod ublk;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Mount, block, mount, nbd, unmount};
pub use error::{Error, Result};
#[cfg(target_os = "linux")]
pub use fuse::{Mount, mount, unmount};
pub use options::MountOptions;
