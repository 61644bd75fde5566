//! Attaching a device to this machine.
//!
//! [`mount`] shows a device as files ([`fuse`]): the whole device as `NAME.raw`, and each partition in its partition table
//! ([`cheetah_volume::partition`]) as `NAME.pN.raw`. Tools that read raw images, and loop devices, can use them.
//!
//! [`nbd`] makes it a block device of the kernel, if the kernel has the module `nbd`; `ublk` does the same with the module
//! `ublk_drv`, if this crate has the feature `ublk`.

#![deny(unsafe_code)]

pub mod block;
mod blocking;
pub mod error;
pub mod fuse;
mod kernel;
pub mod nbd;
mod table;
mod task;
#[cfg(feature = "ublk")]
pub mod ublk;

pub use error::{Error, Result};
pub use fuse::{Mount, MountOptions, mount, unmount};
