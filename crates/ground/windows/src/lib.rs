//! Disks and volumes of Windows: its calls as safe functions, and what they return, parsed without I/O.
//!
//! The modules that do no I/O are built and tested on every system: [`name`] reads the names of devices, [`buffers`] what a
//! device answers, and [`wide`] the lists of names. The others exist on Windows only: `control` asks devices, `volumes` lists
//! mounted volumes, and `disks` describes the disks of this machine.

#![deny(unsafe_code)]

pub mod buffers;
pub mod name;
pub mod wide;

#[cfg(windows)]
#[allow(unsafe_code, reason = "a call without a safe wrapper")]
mod control;
#[cfg(windows)]
pub mod disks;
#[cfg(windows)]
#[allow(unsafe_code, reason = "calls without safe wrappers")]
mod volumes;

#[cfg(windows)]
pub use volumes::{Volume, volumes};
