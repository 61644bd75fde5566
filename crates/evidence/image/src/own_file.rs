//! Files that Cheetah keeps beside evidence (journals, custody logs, coverage maps, reports), opened so that no other
//! file can be read or overwritten.
//!
//! Their names follow from the image's, so another file or a symbolic link may exist there already. An
//! [`OwnFile`] is opened only if it is a regular file, reached without following a link in the last component, whose
//! first bytes are those of a file of its kind. Anything else is an error and is left as it is. New files are created
//! with `O_EXCL`, which follows no link either.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::ops::{Deref, DerefMut};
use std::path::Path;

use cheetah_error::{Error, Result};
use cheetah_kit::file::{
    FileExt as _, NotItself, if_there, of_its_owner_alone, open_itself, sync_folder, try_lock, unlock,
};

use crate::publish::persist;

pub use cheetah_kit::file::FileId;

/// The number of bytes at the start of a file that [`OwnFile::begins`] may look at.
const HEAD_LEN: usize = 4096;

/// The result of opening and locking a file.
#[derive(Debug)]
pub enum Locked {
    /// The lock is held until the file is dropped.
    Held {
        /// The file, open for reading and appending.
        file: LockedFile,
        /// Whether it was created just now.
        is_new: bool,
    },
    /// Another process holds the lock.
    InUse,
    /// There is no such file.
    Absent,
}

/// A file that is locked (flock(2)) until it is dropped.
#[derive(Debug)]
pub struct LockedFile(File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    /// Releases the lock at once. Closing the file would not: a child process has a copy of it until the child executes its
    /// own program.
    fn drop(&mut self) {
        // Then closing does.
        let _ = unlock(&self.0);
    }
}

/// What is in the place of a file of Cheetah's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// A link, which could lead to any file.
    #[error("is a symbolic link")]
    Link,
    /// A folder, a pipe, a socket or a device.
    #[error("is not a regular file")]
    NotRegular,
    /// A file with another beginning.
    #[error("is not a {0} of Cheetah's")]
    OtherContent(&'static str),
}

/// A kind of file that Cheetah keeps beside evidence.
#[derive(Debug, Clone, Copy)]
pub struct OwnFile {
    /// Its name in errors, such as `journal`.
    pub name: &'static str,
    /// Whether a file that begins with these bytes is of this kind. The slice holds the first 4096 bytes, or the whole
    /// of a shorter file: an empty slice for a file that a crash left empty.
    pub begins: fn(&[u8]) -> bool,
}

impl OwnFile {
    /// Opens the file at `path` for reading and appending; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if something else is there, `Kind::Failed` if it cannot be opened.
    pub fn open(self, path: &Path) -> Result<Option<File>> {
        self.open_with(path, OpenOptions::new().read(true).append(true))
    }

    /// Opens the file at `path` for reading and appending; creates it if there is none. Also returns whether it is new.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_or_create(self, path: &Path) -> Result<(File, bool)> {
        loop {
            if let Some(file) = self.open(path)? {
                return Ok((file, false));
            }
            match create(path) {
                Ok(file) => return Ok((file, true)),
                // Another process created it in between.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(self.failed("creating", path, &error)),
            }
        }
    }

    /// As [`Self::open`], and locks the file exclusively (flock(2)). A file that was unlinked or renamed while the lock
    /// was taken is not returned.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_locked(self, path: &Path) -> Result<Locked> {
        self.lock(path, || Ok(self.open(path)?.map(|file| (file, false))))
    }

    /// As [`Self::open_locked`], but creates the file if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_or_create_locked(self, path: &Path) -> Result<Locked> {
        self.lock(path, || self.open_or_create(path).map(Some))
    }

    fn lock(self, path: &Path, open: impl Fn() -> Result<Option<(File, bool)>>) -> Result<Locked> {
        loop {
            let Some((file, is_new)) = open()? else { return Ok(Locked::Absent) };
            let failed = |error| self.failed("locking", path, &error);
            if !try_lock(&file).map_err(failed)? {
                return Ok(Locked::InUse);
            }
            // Its holder may have removed it just before it released the lock.
            if FileId::at(path).map_err(failed)? == Some(FileId::of(&file).map_err(failed)?) {
                return Ok(Locked::Held { file: LockedFile(file), is_new });
            }
        }
    }

    /// Creates the file at `path`, where there must be none, for reading and appending.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if something is there, or it cannot be created.
    pub fn create(self, path: &Path) -> Result<File> {
        create(path).map_err(|error| self.failed("creating", path, &error))
    }

    /// Reads the file at `path`, at most `bytes_max` + 1 bytes; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn read(self, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_with(path, OpenOptions::new().read(true))? else { return Ok(None) };
        // A vector that grows takes twice as much.
        let expected = file.metadata().map_or(0, |metadata| metadata.len()).min(bytes_max);
        let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default().saturating_add(1));
        let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
        read.map(|_| Some(bytes)).map_err(|error| self.failed("reading", path, &error))
    }

    /// Fails if there is something at `path` other than a file of this kind.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn check(self, path: &Path) -> Result<()> {
        self.open_with(path, OpenOptions::new().read(true)).map(drop)
    }

    /// Replaces the file at `path` atomically; the file that it replaces must be of this kind. A file that another
    /// process creates there between the check and the renaming is replaced, too.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn replace(self, path: &Path, content: &[u8]) -> Result<()> {
        self.check(path)?;
        let write = || {
            let folder = folder_of(path);
            // Its owner's alone.
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(content)?;
            file.as_file().sync_all()?;
            persist(file, path)?;
            sync_folder(folder)
        };
        write().map_err(|error| self.failed("writing", path, &error))
    }

    /// Removes the file at `path`, which must be of this kind; does nothing if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn remove(self, path: &Path) -> Result<()> {
        self.check(path)?;
        if_there(std::fs::remove_file(path)).map(drop).map_err(|error| self.failed("removing", path, &error))
    }

    /// Opens the file at `path` with these options, which must include reading; `None` if there is none and none is
    /// created.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_with(self, path: &Path, options: &mut OpenOptions) -> Result<Option<File>> {
        let opened = if_there(open_itself(options, path)).map_err(|error| self.cannot_open(path, &error))?;
        let Some(file) = opened else { return Ok(None) };
        let failed = |error| self.failed("reading", path, &error);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(self.refuse(path, NotOurs::NotRegular));
        }
        if !(self.begins)(&head(&file).map_err(failed)?) {
            return Err(self.refuse(path, NotOurs::OtherContent(self.name)));
        }
        Ok(Some(file))
    }

    fn cannot_open(self, path: &Path, error: &std::io::Error) -> Error {
        match NotItself::of(error) {
            Some(NotItself::Link) => self.refuse(path, NotOurs::Link),
            Some(NotItself::NotRegular) => self.refuse(path, NotOurs::NotRegular),
            None => self.failed("opening", path, error),
        }
    }

    fn refuse(self, path: &Path, is: NotOurs) -> Error {
        let (path, name) = (path.display(), self.name);
        Error::misuse(format!(
            "{path} {is}, and is left alone; Cheetah keeps its own {name} under that name: move it away, or choose \
             another name for the image"
        ))
        .because(is)
    }

    fn failed(self, doing: &str, path: &Path, error: &std::io::Error) -> Error {
        Error::io(format_args!("{doing} the {} {}", self.name, path.display()), error)
    }
}

/// Creates a file of its owner alone.
fn create(path: &Path) -> std::io::Result<File> {
    of_its_owner_alone(OpenOptions::new().read(true).append(true).create_new(true)).open(path)
}

/// The first [`HEAD_LEN`] bytes of a file, or fewer if it is shorter. The file is read from its beginning afterwards.
fn head(mut file: &File) -> std::io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_LEN];
    let mut len = 0;
    while len < HEAD_LEN {
        match file.read_at(&mut head[len..], len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(len);
    // On Windows, reading at a place moves the cursor there.
    file.rewind()?;
    Ok(head)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const NOTES: OwnFile = OwnFile { name: "notebook", begins: |head| head.is_empty() || head.starts_with(b"NOTES\n") };

    fn refused<T: std::fmt::Debug>(result: Result<T>, is: NotOurs) {
        let error = result.unwrap_err();
        assert!(error.is_misuse() && error.cause() == Some(&is), "{error}");
    }

    #[test]
    fn a_file_of_its_kind_is_opened_replaced_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.notes");
        assert!(NOTES.open(&path).unwrap().is_none());
        NOTES.remove(&path).unwrap();
        assert!(NOTES.read(&path, 9).unwrap().is_none());
        let (mut file, is_new) = NOTES.open_or_create(&path).unwrap();
        assert!(is_new);
        file.write_all(b"NOTES\none\n").unwrap();
        let (mut file, is_new) = NOTES.open_or_create(&path).unwrap();
        assert!(!is_new);
        file.write_all(b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"NOTES\none\ntwo\n");
        assert_eq!(FileId::of(&file).unwrap(), FileId::at(&path).unwrap().unwrap());
        NOTES.replace(&path, b"NOTES\nnew\n").unwrap();
        assert_eq!(NOTES.read(&path, 6).unwrap().unwrap(), b"NOTES\nn", "a byte more, so that it shows");
        assert_ne!(FileId::of(&file).unwrap(), FileId::at(&path).unwrap().unwrap());
        assert!(NOTES.create(&path).is_err());
        NOTES.remove(&path).unwrap();
        assert_eq!(FileId::at(&path).unwrap(), None);
    }

    #[test]
    fn a_file_is_locked_by_one_holder_and_only_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.notes");
        assert!(matches!(NOTES.open_locked(&path).unwrap(), Locked::Absent));
        let Locked::Held { file: first, is_new: true } = NOTES.open_or_create_locked(&path).unwrap() else { panic!() };
        assert!(matches!(NOTES.open_or_create_locked(&path).unwrap(), Locked::InUse));
        // As a child process has one until it executes its program.
        let _copy = first.try_clone().unwrap();
        drop(first);
        let Locked::Held { file: first, is_new: false } = NOTES.open_locked(&path).unwrap() else { panic!() };
        fs::remove_file(&path).unwrap();
        assert!(matches!(NOTES.open_locked(&path).unwrap(), Locked::Absent));
        drop(first);
        assert!(matches!(NOTES.open_or_create_locked(&path).unwrap(), Locked::Held { is_new: true, .. }));
    }

    #[test]
    fn a_link_a_pipe_a_folder_and_a_foreign_file_are_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("diary"), "Dear diary").unwrap();
        fs::write(at("real"), "NOTES\n").unwrap();
        symlink(at("real"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for (name, is) in [
            ("diary", NotOurs::OtherContent("notebook")),
            ("link", NotOurs::Link),
            ("dangling", NotOurs::Link),
            ("folder", NotOurs::NotRegular),
            ("pipe", NotOurs::NotRegular),
        ] {
            refused(NOTES.open(&at(name)), is);
            refused(NOTES.open_or_create(&at(name)), is);
            refused(NOTES.read(&at(name), 9), is);
            refused(NOTES.check(&at(name)), is);
            refused(NOTES.replace(&at(name), b"NOTES\n"), is);
            refused(NOTES.remove(&at(name)), is);
        }
        assert_eq!(fs::read(at("diary")).unwrap(), b"Dear diary");
        assert_eq!(fs::read(at("real")).unwrap(), b"NOTES\n");
        assert!(!at("nowhere").exists() && at("link").is_symlink());
    }
}
