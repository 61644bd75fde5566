//! Folders of a user's profile, which only the user and the machine's administrators may use: files there have the rights of their
//! folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{Owner, variable};

/// Rights are lists, which the folder hands down: they are not looked at.
pub(super) fn owner_of(_file: &File) -> io::Result<Owner> {
    Ok(Owner::Own)
}

pub(super) fn make_own_folder(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Of this machine: a key does not roam with the user's profile.
pub(super) fn usual_settings() -> Option<PathBuf> {
    variable("LOCALAPPDATA")
}

pub(super) fn usual_state() -> Option<PathBuf> {
    variable("LOCALAPPDATA")
}

/// A program that is started as administrator has the user who started it.
pub(super) fn behind_sudo() -> Option<String> {
    None
}
