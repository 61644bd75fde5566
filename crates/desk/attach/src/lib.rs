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
mod os;

pub use error::{Error, Result};
pub use options::MountOptions;
pub use os::*;
