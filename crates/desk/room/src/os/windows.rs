//! Folders of a user's profile, which only the user and the machine's administrators may use: files there have the rights of their
//! folder. Rights are lists, and are not looked at.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cheetah_kit::file::{NotItself, open_itself, replace, sync_folder, try_lock};

use super::{NotOwn, Unusable, variable};

/// A folder, by its path.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        let metadata = path.symlink_metadata().map_err(unusable)?;
        if metadata.is_symlink() {
            return Err(Unusable::NotOwn(NotOwn::Link));
        }
        if !metadata.is_dir() {
            return Err(Unusable::NotOwn(NotOwn::OtherType));
        }
        Ok(Self(path.to_owned()))
    }

    /// Makes a folder, and those above it.
    pub fn make(path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    /// Opens a file for reading.
    pub fn read(&self, name: &str) -> Result<File, Unusable> {
        open(OpenOptions::new().read(true), &self.0.join(name))
    }

    /// Creates a file, for writing.
    pub fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.0.join(name))
    }

    /// Takes the lock of a name, `alone` or with others; `None` if another process has it.
    pub fn lock(&self, name: &str, alone: bool) -> Result<Option<File>, Unusable> {
        // The file stays empty, so a lock of all of it keeps nobody from reading it.
        let file = open(OpenOptions::new().read(true).write(true).create(true).truncate(false), &self.0.join(name))?;
        let is_held = match alone {
            true => try_lock(&file)?,
            false => match file.try_lock_shared() {
                Ok(()) => true,
                Err(std::fs::TryLockError::WouldBlock) => false,
                Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
            },
        };
        Ok(is_held.then_some(file))
    }

    /// Gives a file another name, in place of the file that has that name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        replace(&self.0.join(from), &self.0.join(to))
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    /// Puts the names on stable storage.
    pub fn sync(&self) -> io::Result<()> {
        sync_folder(&self.0)
    }
}

fn open(options: &mut OpenOptions, path: &Path) -> Result<File, Unusable> {
    let file = open_itself(options, path).map_err(|error| match NotItself::of(&error) {
        Some(NotItself::Link) => Unusable::NotOwn(NotOwn::Link),
        Some(NotItself::NotRegular) => Unusable::NotOwn(NotOwn::OtherType),
        None => unusable(error),
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Unusable::NotOwn(NotOwn::OtherType)) }
}

fn unusable(error: io::Error) -> Unusable {
    if error.kind() == ErrorKind::NotFound { Unusable::Absent } else { Unusable::Io(error) }
}

/// Of this machine: a key does not roam with the user's profile.
pub(super) fn usual_settings() -> Option<PathBuf> {
    variable("LOCALAPPDATA")
}

pub(super) fn user_number() -> Option<u32> {
    None
}
