//! What differs by system, behind the same functions on each: folders of a user's own, and where they lie.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::path::PathBuf;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

/// An open folder of the user's own. Names in it are reached without following a link.
pub(crate) use system::Folder;

/// Why a folder or a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// There is none.
    #[error("there is none")]
    Absent,
    /// It is not what it should be.
    #[error(transparent)]
    NotOwn(NotOwn),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Why something is not taken for the user's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOwn {
    /// A link, which could lead to any file.
    #[error("it is a symbolic link")]
    Link,
    /// A pipe, a socket or a device, or a file in the place of a directory.
    #[error("it is of another type")]
    OtherType,
    /// It belongs to another user.
    #[error("it belongs to user {0}")]
    OtherUser(u32),
    /// Other users may read or write it.
    #[error("it has the mode {0:03o}")]
    Shared(u32),
}

/// The folder in which this user's programs keep their settings; `None` if the user has no home.
pub(crate) fn settings() -> Option<PathBuf> {
    variable("XDG_CONFIG_HOME").or_else(system::usual_settings)
}

/// The path in a variable, if it is set and not empty.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The number of the user of this process, for messages; `None` where users have none.
pub(crate) fn user_number() -> Option<u32> {
    system::user_number()
}
