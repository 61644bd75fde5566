//! A directory that its owner alone can read, and files in it.
//!
//! Everything is opened relative to the open directory, and links are never followed, so nobody can redirect a read or
//! a write by replacing a name. A directory or file that others own, or may read or write, is refused. A file is
//! replaced as a whole and is on stable storage before the call returns.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cheetah_error::{Error, Result};
use cheetah_kit::{random, rename_new_at};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// The permission bits of users other than the owner.
const OTHERS: u32 = 0o077;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// How long a change waits for another process's.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

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

/// An open directory of the user's own.
#[derive(Debug)]
pub struct OwnDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing it releases the lock")] OwnedFd);

impl OwnDirectory {
    /// Opens a directory; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If it is something else, such as a link, or not the user's alone.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(Error::failed(format!(
                    "{} is not a directory, or a symbolic link to one; move it away",
                    path.display()
                )));
            }
            Err(errno) => return Err(failed("opening", path, errno)),
        };
        let directory = Self { fd, path: path.to_owned() };
        check(directory.fd.as_fd(), path, FileType::Directory)?;
        Ok(Some(directory))
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
        let made = {
            use std::os::unix::fs::DirBuilderExt as _;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
        };
        made.map_err(|error| Error::io(format_args!("creating {}", path.display()), &error))?;
        Self::open(path)?.ok_or_else(|| failed("opening", path, Errno::NOENT))
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
        let Some(fd) = self.open_file(name, OFlags::RDONLY)? else { return Ok(None) };
        // Room for all of it at once: a buffer that grows leaves copies of a key behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(len_max.min(64 << 10) + 1));
        let read = File::from(fd).take(len_max as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::io(format_args!("reading {}", path.display()), &error))?;
        if bytes.len() > len_max {
            return Err(Error::failed(format!("{} is longer than {len_max} bytes", path.display())));
        }
        Ok(Some(bytes))
    }

    fn open_file(&self, name: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
        let path = self.at(name);
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, name, flags, FILE_MODE) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                let sentence = format!("{} is a symbolic link, and is not followed", path.display());
                return Err(Error::failed(sentence).because(NotOwn::Link));
            }
            Err(errno) => return Err(failed("opening", &path, errno)),
        };
        check(fd.as_fd(), &path, FileType::RegularFile)?;
        Ok(Some(fd))
    }

    /// Writes a file, which replaces one of that name.
    ///
    /// # Errors
    ///
    /// If it cannot be written. The old content is then unchanged.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        self.put(name, content, true).map(drop)
    }

    /// Writes a new file. Returns whether it did: `false` if there is a file of that name.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write_new(&self, name: &str, content: &[u8]) -> Result<bool> {
        self.put(name, content, false)
    }

    fn put(&self, name: &str, content: &[u8], replace: bool) -> Result<bool> {
        let doing = |errno| failed("writing", &self.at(name), errno);
        let temporary = format!(".{name}.{}.{:016x}", std::process::id(), random::bits_64()?);
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, &*temporary, create, FILE_MODE).map_err(doing)?;
        let write = || {
            let mut file = File::from(fd);
            file.write_all(content)?;
            file.sync_all()
        };
        let written = write().map_err(|error| Error::io(format_args!("writing {}", self.at(name).display()), &error));
        let rename = || match replace {
            true => Ok(rustix::fs::renameat(&self.fd, &*temporary, &self.fd, name)?),
            false => rename_new_at(&self.fd, temporary.as_ref(), name.as_ref()),
        };
        let renamed = written.and_then(|()| match rename() {
            Ok(()) => Ok(true),
            Err(error) if !replace && error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Error::io(format_args!("writing {}", self.at(name).display()), &error)),
        });
        if !matches!(renamed, Ok(true)) {
            // A temporary file that cannot be removed is never read.
            let _ = rustix::fs::unlinkat(&self.fd, &*temporary, AtFlags::empty());
        }
        rustix::fs::fsync(&self.fd).map_err(doing)?;
        renamed
    }

    /// Removes a file; does nothing if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("removing", &self.at(name), errno)),
        }
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
        self.lock_as(name, FlockOperation::NonBlockingLockExclusive)
    }

    /// Whether another process has the lock of this name. Any number of processes may ask at the same time.
    ///
    /// # Errors
    ///
    /// As [`Self::try_lock`].
    pub fn is_locked(&self, name: &str) -> Result<bool> {
        Ok(self.lock_as(name, FlockOperation::NonBlockingLockShared)?.is_none())
    }

    fn lock_as(&self, name: &str, operation: FlockOperation) -> Result<Option<Lock>> {
        let fd = self.open_file(name, OFlags::RDWR | OFlags::CREATE)?;
        let fd = fd.ok_or_else(|| failed("locking", &self.at(name), Errno::NOENT))?;
        match rustix::fs::flock(&fd, operation) {
            Ok(()) => Ok(Some(Lock(fd))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed("locking", &self.at(name), errno)),
        }
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
    let synced = File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(|error| Error::io(format_args!("writing {}", parent.display()), &error))?;
    Ok(true)
}

/// Fails unless a directory or file is of this type and the user's alone.
fn check(fd: impl AsFd, path: &Path, wanted: FileType) -> Result<()> {
    let shown = path.display();
    let stat = rustix::fs::fstat(fd).map_err(|errno| failed("reading", path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != wanted {
        let sentence = format!("{shown} is not a regular file; move it away");
        return Err(Error::failed(sentence).because(NotOwn::OtherType));
    }
    let user = rustix::process::geteuid();
    // Root may use the directory of the user who called sudo.
    if stat.st_uid != user.as_raw() && !user.is_root() {
        return Err(Error::failed(format!(
            "{shown} belongs to user {}, not to the user of this process ({}), so it proves nothing; use a directory of \
             your own (XDG_CONFIG_HOME)",
            stat.st_uid,
            user.as_raw()
        ))
        .because(NotOwn::OtherUser(stat.st_uid)));
    }
    let mode = stat.st_mode & 0o777;
    if mode & OTHERS != 0 {
        return Err(Error::failed(format!(
            "others may read or write {shown} (mode {mode:03o}); if nobody did, run: chmod go= {shown}"
        ))
        .because(NotOwn::Shared(mode)));
    }
    Ok(())
}

fn failed(doing: &str, path: &Path, errno: Errno) -> Error {
    Error::io(format_args!("{doing} {}", path.display()), &errno.into())
}

/// The names in a directory that `wanted` accepts, sorted; none if there is no directory.
pub(crate) fn names_in(path: &Path, wanted: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format_args!("reading {}", path.display()), &error)),
    };
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
        assert!(!own.write_new("key", b"three").unwrap());
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
    fn a_pipe_is_refused_at_once() {
        let (_dir, own) = own();
        rustix::fs::mknodat(CWD, own.at("key"), FileType::Fifo, FILE_MODE, 0).unwrap();
        assert_eq!(own.read("key", 9).unwrap_err().cause(), Some(&NotOwn::OtherType));
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
