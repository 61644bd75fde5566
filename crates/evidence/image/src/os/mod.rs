//! What differs by operating system, behind the same names on each. The rest of the crate does not know more.

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
mod bsd;
mod fast_zlib;
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
mod holes;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(windows, target_os = "macos"))]
mod no_holes;
#[cfg(not(target_os = "linux"))]
mod uncached;
#[cfg(unix)]
mod unix;
#[cfg(not(target_os = "linux"))]
mod unwatched;
#[cfg(windows)]
mod windows;

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
pub(crate) use bsd::*;
pub(crate) use fast_zlib::FastZlib;
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
pub(crate) use holes::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(any(windows, target_os = "macos"))]
pub(crate) use no_holes::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use uncached::*;
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use unwatched::{TIMES, Watch};
#[cfg(windows)]
pub(crate) use windows::*;

/// What has a name, or is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A regular file.
    File,
    /// A disk, a partition or a volume.
    Disk,
    /// A folder.
    Folder,
    /// A pipe.
    Pipe,
    /// A socket.
    #[cfg_attr(windows, allow(dead_code, reason = "files are no sockets there"))]
    Socket,
    /// Another device.
    Device,
}
