//! What differs by system, behind the same functions on each: users, folders of a user's own, and where they lie.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

/// To whom a file belongs, as far as its owner and its mode say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(windows, allow(dead_code, reason = "rights are lists there, which are not looked at"))]
pub(crate) enum Owner {
    /// To the user of this process alone; root may use the file of any user.
    Own,
    /// To another user.
    Other,
    /// To the user of this process, and others may use it: the permission bits.
    Shared(u32),
}

impl Owner {
    /// Of an open file.
    ///
    /// # Errors
    ///
    /// Those of fstat(2).
    pub fn of(file: &File) -> io::Result<Self> {
        system::owner_of(file)
    }
}

/// Makes a folder, and those above it; new ones are the user's alone.
///
/// # Errors
///
/// Those of mkdir(2).
pub(crate) fn make_own_folder(path: &Path) -> io::Result<()> {
    system::make_own_folder(path)
}

/// The folder in which this user's programs keep their settings; `None` if the user has no home.
pub(crate) fn settings() -> Option<PathBuf> {
    variable("XDG_CONFIG_HOME").or_else(system::usual_settings)
}

/// The folder in which this user's programs keep their state; `None` if the user has no home.
pub(crate) fn state() -> Option<PathBuf> {
    variable("XDG_STATE_HOME").or_else(system::usual_state)
}

/// The path in a variable, if it is set and not empty.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The user who called sudo for this process, if that is how it became root.
pub(crate) fn behind_sudo() -> Option<String> {
    system::behind_sudo()
}
