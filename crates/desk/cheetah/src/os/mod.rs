//! What differs by system, behind the same names on each: signals, terminals, processes, and what a system lacks. Another system is
//! another folder here; `unix` has what Linux, FreeBSD and macOS have in common.

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fmt;

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
pub use bsd::*;
#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// What some systems lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Drives and images as files (FUSE).
    Mounts,
    /// Drives and images as block devices.
    BlockDevices,
    /// The verbs of the Python package.
    Python,
    /// The demonstration, which mounts.
    Demo,
    /// Sockets with a path.
    UnixSockets,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mounts => "drives and images are mounted by FUSE",
            Self::BlockDevices => "drives and images become block devices by drivers of the kernel",
            Self::Python => "the Python package reads mounts of FUSE",
            Self::Demo => "the demonstration mounts a drive",
            Self::UnixSockets => "a socket with a path is one of Unix",
        })
    }
}
