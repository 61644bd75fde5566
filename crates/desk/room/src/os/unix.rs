//! Directories by descriptors, users by number, and modes of files.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{NotOwn, Unusable, variable};

/// The permission bits of users other than the owner.
const OTHERS: u32 = 0o077;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// An open directory. Everything is opened relative to it, so nobody can redirect a read or a write by replacing a name.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => fd,
            // Of a link, FreeBSD says that it has too many links.
            Err(Errno::LOOP | Errno::MLINK | Errno::NOTDIR) => return Err(Unusable::NotOwn(NotOwn::Link)),
            Err(errno) => return Err(unusable(errno)),
        };
        check(&fd, FileType::Directory)?;
        Ok(Self(fd))
    }

    /// Makes a directory, and those above it. New ones are the owner's alone.
    pub fn make(path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    /// Opens a file for reading.
    pub fn read(&self, name: &str) -> Result<File, Unusable> {
        self.open_file(name, OFlags::RDONLY)
    }

    /// Creates a file of its owner alone, for writing.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, create, FILE_MODE).map(File::from)?)
    }

    /// Opens a file that is only locked, and creates it if there is none.
    fn open_lock(&self, name: &str) -> Result<File, Unusable> {
        self.open_file(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Takes the lock of a name, `alone` or with others; `None` if another process has it.
    pub fn lock(&self, name: &str, alone: bool) -> Result<Option<File>, Unusable> {
        let file = self.open_lock(name)?;
        let operation =
            if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        match rustix::fs::flock(&file, operation) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(unusable(errno)),
        }
    }

    /// Gives a file another name, in place of the file that has that name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Puts the names on stable storage. Not by fsync(2) itself, which leaves them in the disk's own cache on macOS.
    pub fn sync(&self) -> io::Result<()> {
        File::from(self.0.try_clone()?).sync_all()
    }

    fn open_file(&self, name: &str, flags: OFlags) -> Result<File, Unusable> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.0, name, flags, FILE_MODE).map_err(|errno| match errno {
            Errno::LOOP | Errno::MLINK => Unusable::NotOwn(NotOwn::Link),
            errno => unusable(errno),
        })?;
        check(&fd, FileType::RegularFile)?;
        Ok(fd.into())
    }
}

/// Fails unless a directory or file is of this type and the user's alone.
fn check(fd: impl AsFd, wanted: FileType) -> Result<(), Unusable> {
    let stat = rustix::fs::fstat(fd).map_err(unusable)?;
    if FileType::from_raw_mode(stat.st_mode) != wanted {
        return Err(Unusable::NotOwn(NotOwn::OtherType));
    }
    let user = rustix::process::geteuid();
    // Root may use the directory of the user who called sudo.
    if stat.st_uid != user.as_raw() && !user.is_root() {
        return Err(Unusable::NotOwn(NotOwn::OtherUser(stat.st_uid)));
    }
    #[allow(clippy::useless_conversion, reason = "it has 16 bits on FreeBSD and macOS")]
    let mode = u32::from(stat.st_mode) & 0o777;
    if mode & OTHERS != 0 { Err(Unusable::NotOwn(NotOwn::Shared(mode))) } else { Ok(()) }
}

fn unusable(errno: Errno) -> Unusable {
    if errno == Errno::NOENT { Unusable::Absent } else { Unusable::Io(errno.into()) }
}

pub(super) fn usual_settings() -> Option<PathBuf> {
    variable("HOME").map(|home| home.join(".config"))
}

pub(super) fn user_number() -> Option<u32> {
    Some(rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own");
        Folder::make(&path).unwrap();
        rustix::fs::mknodat(CWD, path.join("key"), FileType::Fifo, FILE_MODE, 0).unwrap();
        let refused = Folder::open(&path).unwrap().read("key").unwrap_err();
        assert!(matches!(refused, Unusable::NotOwn(NotOwn::OtherType)), "{refused}");
    }
}
