//! What differs by operating system, behind the same names on each: the modules that other crates see call these, and do not know
//! more. Another system is another folder here; `unix` has what Linux, FreeBSD and macOS have in common.

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
mod bsd;
#[cfg(not(target_os = "linux"))]
mod kinds;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, target_os = "freebsd", target_os = "macos"))]
mod pages;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(any(target_os = "freebsd", target_os = "macos"))]
pub(crate) use bsd::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(windows)]
pub(crate) use windows::*;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Which file one is, whatever its name: two files that exist at the same time differ in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The number of the file system.
    pub volume: u64,
    /// The number of the file there.
    pub number: u128,
}

/// Seconds, and nanoseconds beyond those, since 1970.
pub type Time = (i64, i64);

/// What the system knows of a file beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Which file it is.
    pub id: FileId,
    /// Its length, in bytes.
    pub len: u64,
    /// The number of its names (hard links).
    pub names: u64,
    /// When its content was changed last. Programs can set it.
    pub modified: Time,
    /// When anything of it was changed last. Programs cannot set it, or not easily.
    pub changed: Time,
}

impl Status {
    /// Of an open file.
    ///
    /// # Errors
    ///
    /// Those of fstat(2).
    pub fn of(file: &File) -> io::Result<Self> {
        file::status_of(file)
    }

    /// Of the file or the folder at `path`, or to which a link there leads.
    ///
    /// # Errors
    ///
    /// Those of stat(2).
    pub fn at(path: &Path) -> io::Result<Self> {
        file::status_at(path)
    }
}

impl FileId {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    ///
    /// Those of fstat(2).
    pub fn of(file: &File) -> io::Result<Self> {
        Status::of(file).map(|status| status.id)
    }

    /// Returns the identity of the file at `path`, without following a symbolic link; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of lstat(2).
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        match file::status_of_itself(path) {
            Ok(status) => Ok(Some(status.id)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What is in the place of a file that must be there itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotItself {
    /// A link, which could lead to any file.
    #[error("it is a symbolic link")]
    Link,
    /// A folder, a pipe, a socket or a device.
    #[error("it is not a regular file")]
    NotRegular,
}
