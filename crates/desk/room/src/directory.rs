//! A directory that its owner alone can read, and files in it.
//!
//! Links are never followed, and on Linux everything is opened relative to the open directory, so nobody can redirect a read or
//! a write by replacing a name. A directory or file that others own, or may read or write, is refused. A file is
//! replaced as a whole and is on stable storage before the call returns.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cheetah_error::{Error, Result};
use cheetah_kit::file::{if_there, sync_folder};
use cheetah_kit::random;
use zeroize::Zeroizing;

pub use crate::os::NotOwn;
use crate::os::{self, Folder, Unusable};

/// How long a change waits for another process's.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// An open directory of the user's own.
#[derive(Debug)]
pub struct OwnDirectory {
    folder: Folder,
    path: PathBuf,
}

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing it releases the lock")] File);

impl OwnDirectory {
    /// Opens a directory; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If it is something else, such as a link, or not the user's alone.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        match Folder::open(path) {
            Ok(folder) => Ok(Some(Self { folder, path: path.to_owned() })),
            Err(Unusable::Absent) => Ok(None),
            Err(Unusable::NotOwn(NotOwn::Link | NotOwn::OtherType)) => Err(Error::failed(format!(
                "{} is not a directory, or a symbolic link to one; move it away",
                path.display()
            ))),
            Err(why) => Err(failed("opening", path, why)),
        }
    }

    /// Opens a directory, and creates it, and those above it, if there is none. New ones are the owner's alone.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], and if it cannot be created.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        if let Some(directory) = Self::open(path)? {
            return Ok(directory);
        }
        Folder::make(path).map_err(|error| Error::io(format_args!("creating {}", path.display()), &error))?;
        Self::open(path)?.ok_or_else(|| failed("opening", path, Unusable::Absent))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, for messages.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file of at most `len_max` bytes; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If it is longer, a link or no regular file, or not the user's alone, or cannot be read.
    pub fn read(&self, name: &str, len_max: usize) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let path = self.at(name);
        let file = match self.folder.read(name) {
            Ok(file) => file,
            Err(Unusable::Absent) => return Ok(None),
            Err(why) => return Err(failed("opening", &path, why)),
        };
        // Room for all of it at once: a buffer that grows leaves copies of a key behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(len_max.min(64 << 10) + 1));
        let read = file.take(len_max as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::io(format_args!("reading {}", path.display()), &error))?;
        if bytes.len() > len_max {
            return Err(Error::failed(format!("{} is longer than {len_max} bytes", path.display())));
        }
        Ok(Some(bytes))
    }

    /// Writes a file, which replaces one of that name.
    ///
    /// # Errors
    ///
    /// If it cannot be written. The old content is then unchanged.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let doing = |error| Error::io(format_args!("writing {}", self.at(name).display()), &error);
        let temporary = format!(".{name}.{}.{:016x}", std::process::id(), random::bits_64()?);
        let mut file = self.folder.create(&temporary).map_err(doing)?;
        let written = file.write_all(content).and_then(|()| file.sync_all()).map_err(doing);
        // Some systems do not rename an open file.
        drop(file);
        let renamed = written.and_then(|()| self.folder.rename(&temporary, name).map_err(doing));
        if renamed.is_err() {
            // A temporary file that cannot be removed is never read.
            let _ = self.folder.remove(&temporary);
        }
        self.folder.sync().map_err(doing)?;
        renamed
    }

    /// Removes a file; does nothing if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        let removed = if_there(self.folder.remove(name)).map(drop);
        removed.map_err(|error| Error::io(format_args!("removing {}", self.at(name).display()), &error))
    }

    /// Takes the lock of this name; waits for another process that has it.
    ///
    /// # Errors
    ///
    /// If another process has it for 30 s.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let started = Instant::now();
        loop {
            if let Some(lock) = self.try_lock(name)? {
                return Ok(lock);
            }
            if started.elapsed() > LOCK_PATIENCE {
                return Err(Error::failed(format!(
                    "another process has changed {} for {} s and is not done; end it, and try again",
                    self.path.display(),
                    LOCK_PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    /// Takes the lock of this name; `None` if another process has it.
    ///
    /// # Errors
    ///
    /// If it cannot be created or locked.
    pub fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        self.lock_as(name, true)
    }

    /// Whether another process has the lock of this name. Any number of processes may ask at the same time.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lock`].
    pub fn is_locked(&self, name: &str) -> Result<bool> {
        Ok(self.lock_as(name, false)?.is_none())
    }

    fn lock_as(&self, name: &str, alone: bool) -> Result<Option<Lock>> {
        let held = self.folder.lock(name, alone);
        held.map(|file| file.map(Lock)).map_err(|why| failed("locking", &self.at(name), why))
    }
}

/// Renames a directory or file where there is nothing of the new name. Returns whether it did.
///
/// # Errors
///
/// If it cannot be renamed for another reason.
pub fn rename_new(from: &Path, to: &Path) -> Result<bool> {
    match cheetah_kit::rename_new(from, to) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(Error::io(format_args!("naming {}", to.display()), &error)),
    }
    let parent = to.parent().unwrap_or(Path::new("/"));
    sync_folder(parent).map_err(|error| Error::io(format_args!("writing {}", parent.display()), &error))?;
    Ok(true)
}

fn failed(doing: &str, path: &Path, why: Unusable) -> Error {
    let shown = path.display();
    let not_own = match why {
        Unusable::Absent => {
            let error = std::io::Error::from(ErrorKind::NotFound);
            return Error::io(format_args!("{doing} {shown}"), &error);
        }
        Unusable::Io(error) => return Error::io(format_args!("{doing} {shown}"), &error),
        Unusable::NotOwn(not_own) => not_own,
    };
    let sentence = match not_own {
        NotOwn::Link => format!("{shown} is a symbolic link, and is not followed"),
        NotOwn::OtherType => format!("{shown} is not a regular file; move it away"),
        NotOwn::OtherUser(user) => format!(
            "{shown} belongs to user {user}, not to the user of this process ({}), so it proves nothing; use a directory of \
             your own (XDG_CONFIG_HOME)",
            os::user_number().unwrap_or_default()
        ),
        NotOwn::Shared(mode) => {
            format!("others may read or write {shown} (mode {mode:03o}); if nobody did, run: chmod go= {shown}")
        }
    };
    Error::failed(sentence).because(not_own)
}

/// The names in a directory that `wanted` accepts, sorted; none if there is no directory.
pub(crate) fn names_in(path: &Path, wanted: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let entries = if_there(std::fs::read_dir(path));
    let entries = entries.map_err(|error| Error::io(format_args!("reading {}", path.display()), &error))?;
    let Some(entries) = entries else { return Ok(Vec::new()) };
    let names = entries.flatten().filter_map(|entry| wanted(entry.file_name().to_str()?));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn own() -> (tempfile::TempDir, OwnDirectory) {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnDirectory::open_or_create(&dir.path().join("a/b")).unwrap();
        (dir, own)
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_written_is_the_owners_alone_and_read_back() {
        let (_dir, own) = own();
        own.write("key", b"one").unwrap();
        own.write("key", b"two").unwrap();
        assert_eq!(**own.read("key", 3).unwrap().unwrap(), *b"two");
        assert!(own.read("key", 2).is_err());
        assert!(own.read("other", 9).unwrap().is_none());
        assert_eq!((mode(own.path()), mode(&own.at("key"))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(own.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn what_others_may_read_is_refused() {
        let (_dir, own) = own();
        own.write("key", b"one").unwrap();
        set_mode(&own.at("key"), 0o640);
        assert_eq!(own.read("key", 9).unwrap_err().cause(), Some(&NotOwn::Shared(0o640)));
        set_mode(own.path(), 0o750);
        assert_eq!(OwnDirectory::open(own.path()).unwrap_err().cause(), Some(&NotOwn::Shared(0o750)));
    }

    #[test]
    fn links_are_not_followed() {
        let (dir, own) = own();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, b"secret").unwrap();
        set_mode(&outside, 0o600);
        symlink(&outside, own.at("key")).unwrap();
        assert_eq!(own.read("key", 9).unwrap_err().cause(), Some(&NotOwn::Link));
        assert!(own.try_lock("key").is_err());
        own.write("key", b"new").unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"secret", "the link was replaced");
        symlink(own.path(), dir.path().join("link")).unwrap();
        assert!(OwnDirectory::open(&dir.path().join("link")).is_err());
    }

    #[test]
    fn one_at_a_time_has_a_lock() {
        let (_dir, own) = own();
        let held = own.try_lock("lock").unwrap();
        assert!(held.is_some() && own.try_lock("lock").unwrap().is_none());
        drop(held);
        assert!(own.try_lock("lock").unwrap().is_some());
    }
}
