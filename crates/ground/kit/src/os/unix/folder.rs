//! Folders by descriptors.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::NotItself;
use crate::folder::Entry;

const FOLDER_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

pub(crate) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        open(CWD, path)
    }

    pub(crate) fn folder(&self, name: &str) -> io::Result<Self> {
        open(&self.0, name.as_ref())
    }

    pub(crate) fn make_folder(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, FOLDER_MODE)?)
    }

    pub(crate) fn entries(&self) -> io::Result<Vec<(String, Entry)>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            // Some file systems do not tell what has a name.
            let is = match entry.file_type() {
                FileType::Unknown => {
                    let found = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(found.st_mode)
                }
                is => is,
            };
            let is = match is {
                FileType::RegularFile => Entry::File,
                FileType::Directory => Entry::Folder,
                FileType::Symlink => Entry::Link,
                _ => Entry::Other,
            };
            entries.push((name.to_string_lossy().into_owned(), is));
        }
        Ok(entries)
    }

    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDONLY)
    }

    pub(crate) fn append(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDWR | OFlags::APPEND)
    }

    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL)
    }

    pub(crate) fn take(&self, from: &Self, name: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&from.0, name, &self.0, to)?)
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    pub(crate) fn remove_folder(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        // Not fsync(2) itself, which leaves the names in the disk's own cache on macOS.
        File::from(self.0.try_clone()?).sync_all()
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // Without O_NONBLOCK, opening a named pipe would wait for its other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, FILE_MODE)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(ErrorKind::InvalidInput, NotItself::NotRegular)),
        }
    }
}

fn open(within: impl AsFd, path: &Path) -> io::Result<Folder> {
    let within = within.as_fd();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    match rustix::fs::openat(within, path, flags, Mode::empty()) {
        Ok(fd) => Ok(Folder(fd)),
        // Of a link, it says that it is no directory; FreeBSD and macOS may say that it is a link.
        Err(errno @ (Errno::NOTDIR | Errno::LOOP | Errno::MLINK)) => {
            let found = rustix::fs::statat(within, path, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Symlink => Err(io::Error::new(ErrorKind::InvalidInput, NotItself::Link)),
                _ => Err(errno.into()),
            }
        }
        Err(errno) => Err(errno.into()),
    }
}
