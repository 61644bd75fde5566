//! What differs by operating system, behind the same names on each. The rest of the crate does not know more.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
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
