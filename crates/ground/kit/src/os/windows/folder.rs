//! Folders by paths: a name is looked at before it is opened.

use std::fs::{self, File, FileType};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::super::NotItself;
use crate::folder::Entry;

#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

pub(crate) fn make(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match entry(path.symlink_metadata()?.file_type()) {
            Entry::Folder => Ok(Self(path.to_owned())),
            Entry::Link => Err(io::Error::new(ErrorKind::InvalidInput, NotItself::Link)),
            Entry::File | Entry::Other => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub(crate) fn folder(&self, name: &str) -> io::Result<Self> {
        Self::open(&self.0.join(name))
    }

    pub(crate) fn make_folder(&self, name: &str) -> io::Result<()> {
        fs::create_dir(self.0.join(name))
    }

    pub(crate) fn entries(&self) -> io::Result<Vec<(String, Entry)>> {
        let found =
            |found: fs::DirEntry| Ok((found.file_name().to_string_lossy().into_owned(), entry(found.file_type()?)));
        fs::read_dir(&self.0)?.map(|entry| entry.and_then(found)).collect()
    }

    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        self.regular(super::file::open_itself(File::options().read(true), &self.0.join(name))?)
    }

    pub(crate) fn append(&self, name: &str) -> io::Result<File> {
        self.regular(super::file::open_itself(File::options().read(true).append(true), &self.0.join(name))?)
    }

    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        File::options().read(true).append(true).create_new(true).open(self.0.join(name))
    }

    pub(crate) fn take(&self, from: &Self, name: &str, to: &str) -> io::Result<()> {
        super::rename::replace(&from.0.join(name), &self.0.join(to))
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    pub(crate) fn remove_folder(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(name))
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        super::file::sync_folder(&self.0)
    }

    fn regular(&self, file: File) -> io::Result<File> {
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(ErrorKind::InvalidInput, NotItself::NotRegular)),
        }
    }
}

fn entry(is: FileType) -> Entry {
    match () {
        () if is.is_symlink() => Entry::Link,
        () if is.is_dir() => Entry::Folder,
        () if is.is_file() => Entry::File,
        () => Entry::Other,
    }
}
