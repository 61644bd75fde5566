//! Disks and volumes of Windows, and the end of a session: its calls as safe functions, and what they return, parsed without I/O.
//!
//! The modules that do no I/O are built and tested on every system: [`name`] reads the names of devices, [`buffers`] what a
//! device answers, and [`wide`] the lists of names. The others exist on Windows only: `control` asks devices, `volumes` lists
//! mounted volumes, `disks` describes the disks of this machine, and `session` tells when the user logs off.

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
mod session;
#[cfg(windows)]
#[allow(unsafe_code, reason = "calls without safe wrappers")]
mod volumes;

#[cfg(windows)]
pub use session::{SessionEnd, when_session_ends};
#[cfg(windows)]
pub use volumes::{Volume, extents_of, volumes};
