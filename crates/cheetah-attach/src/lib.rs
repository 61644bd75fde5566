//! Attaching a device to this machine.
//!
//! [`mount`] shows a device as files ([`fuse`]): the whole of it as `NAME.raw`, and each partition in its
//! partition table ([`cheetah_volume::partition`]) as `NAME.pN.raw`. Any tool that reads a raw image can work on them, and so
//! can loop devices.

#![forbid(unsafe_code)]

pub mod error;
pub mod fuse;

pub use error::{Error, Result};
pub use fuse::{Mount, MountOptions, mount, unmount};
