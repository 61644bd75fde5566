//! Users by number, and modes of files.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{Owner, variable};

/// The permission bits of users other than the owner.
const OTHERS: u32 = 0o077;

pub(super) fn owner_of(file: &File) -> io::Result<Owner> {
    let metadata = file.metadata()?;
    let user = rustix::process::geteuid();
    if !user.is_root() && metadata.uid() != user.as_raw() {
        return Ok(Owner::Other);
    }
    let mode = metadata.mode();
    Ok(if mode & OTHERS != 0 { Owner::Shared(mode & 0o777) } else { Owner::Own })
}

pub(super) fn make_own_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

pub(super) fn usual_settings() -> Option<PathBuf> {
    variable("HOME").map(|home| home.join(".config"))
}

pub(super) fn usual_state() -> Option<PathBuf> {
    variable("HOME").map(|home| home.join(".local/state"))
}

pub(super) fn behind_sudo() -> Option<String> {
    let behind = std::env::var("SUDO_USER").ok().filter(|behind| !behind.is_empty())?;
    rustix::process::getuid().is_root().then_some(behind)
}
