//! Files: reading and writing at a place, their identity, locks, permissions and holes.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::os;

pub use crate::os::{FileId, NotItself, Status, Time};

/// Reading and writing at a place of a file, whatever its cursor is at. On Windows, the cursor is behind that place afterwards.
pub trait FileExt {
    /// Reads some bytes from `offset` on; 0 at the end of the file.
    ///
    /// # Errors
    ///
    /// Those of pread(2).
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some of `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// Those of pwrite(2).
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// Of the kind [`UnexpectedEof`](ErrorKind::UnexpectedEof) at the end of the file, and those of pread(2).
    fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.read_at(bytes, offset) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "failed to fill whole buffer")),
                Ok(len) => {
                    bytes = &mut bytes[len..];
                    offset += len as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// Those of pwrite(2).
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::Error::new(ErrorKind::WriteZero, "failed to write whole buffer")),
                Ok(len) => {
                    bytes = &bytes[len..];
                    offset += len as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FileExt for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        os::file::read_at(self, bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        os::file::write_at(self, bytes, offset)
    }
}

/// Asks the system to begin to store a range of what was written, without waiting for it. Only what is stored already may leave the page
/// cache. Windows begins by itself, so there it does nothing.
///
/// # Errors
///
/// Those of posix_fadvise(2).
pub fn begin_storing(file: &File, offset: u64, len: u64) -> io::Result<()> {
    os::file::begin_storing(file, offset, len)
}

/// Opens the file at `path` itself, and does not wait: a link is not followed in the last component, and a named pipe is not
/// waited for.
///
/// # Errors
///
/// The system's; [`NotItself::of`] says whether something else is there. What is opened may still be no regular file.
pub fn open_itself(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    os::file::open_itself(options, path)
}

/// As [`open_itself`], but waits for the other end of a named pipe.
///
/// # Errors
///
/// As [`open_itself`].
pub fn open_without_following(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    os::file::open_without_following(options, path)
}

impl NotItself {
    /// What is in the place of the file for which [`open_itself`] failed, if that is why it failed.
    pub fn of(error: &io::Error) -> Option<Self> {
        let named = error.get_ref().and_then(|inner| inner.downcast_ref()).copied();
        named.or_else(|| os::file::not_itself(error))
    }
}

/// The result of an operation on a file that need not exist: `None` if it does not.
///
/// # Errors
///
/// Those of the operation, but of the kind [`NotFound`](ErrorKind::NotFound).
pub fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// Has a file that is created be its owner's alone, where permissions are not those of the folder.
pub fn of_its_owner_alone(options: &mut OpenOptions) -> &mut OpenOptions {
    os::file::of_its_owner_alone(options)
}

/// Whether users beside a file's owner may use it, where a file's mode says that.
///
/// # Errors
///
/// Those of fstat(2).
pub fn others_may_use(file: &File) -> io::Result<bool> {
    os::file::others_may_use(file)
}

/// The permissions that the umask leaves of reading and writing for all; `None` where a new file has those of its folder.
pub fn as_the_umask_allows() -> Option<Permissions> {
    os::file::as_the_umask_allows()
}

/// Locks a file exclusively, for programs that ask for this lock; others may read and write it. False if another process has
/// locked it. The lock ends with the last copy of the handle, or with [`unlock`].
///
/// # Errors
///
/// Those of flock(2).
pub fn try_lock(file: &File) -> io::Result<bool> {
    os::file::try_lock(file)
}

/// Releases a lock, even if there are copies of the handle.
///
/// # Errors
///
/// Those of flock(2).
pub fn unlock(file: &File) -> io::Result<()> {
    os::file::unlock(file)
}

/// Replaces the file at `to` by the one at `from`, also while programs have it open. On Windows, the names are on stable storage
/// then, unless a program had it open.
///
/// # Errors
///
/// Those of rename(2).
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    os::rename::replace(from, to)
}

/// Cuts a file to this many bytes, or lengthens it by zeros; also a file that was opened only to append to it.
///
/// # Errors
///
/// Those of ftruncate(2).
pub fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    os::file::set_len(file, bytes)
}

/// Puts the names in a folder on stable storage.
///
/// # Errors
///
/// Those of fsync(2).
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    os::file::sync_folder(folder)
}

/// Has parts of a file that are never written take no space, where a file must say so.
///
/// # Errors
///
/// If the file system has no sparse files.
pub fn make_sparse(file: &File) -> io::Result<()> {
    os::file::make_sparse(file)
}

/// Makes a hole of a part of a sparse file: it reads as zeros, and its space is free.
///
/// # Errors
///
/// If the file system cannot.
pub fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    os::file::punch_hole(file, offset, len)
}

/// The bytes that this user may write to the file system of a folder; `None` if it does not tell.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    os::file::free_bytes(folder)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn places_are_read_and_written_whatever_the_cursor_is_at() {
        let file = tempfile::tempfile().unwrap();
        make_sparse(&file).unwrap();
        file.write_all_at(b"cheetah", 1 << 20).unwrap();
        let mut bytes = [1; 8];
        file.read_exact_at(&mut bytes, (1 << 20) - 1).unwrap();
        assert_eq!(&bytes, b"\0cheetah");
        assert_eq!(file.read_at(&mut bytes, (1 << 20) + 3).unwrap(), 4);
        assert_eq!(file.read_at(&mut bytes, (1 << 20) + 7).unwrap(), 0);
        let error = file.read_exact_at(&mut bytes, 1 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        let holed = punch_hole(&file, 1 << 20, 4096);
        // Wine and some file systems of Windows have no holes.
        assert!(holed.is_ok() || cfg!(windows), "{holed:?}");
        file.read_exact_at(&mut bytes, (1 << 20) - 1).unwrap();
        assert_eq!(&bytes, if holed.is_ok() { &[0; 8] } else { b"\0cheetah" });
    }

    #[test]
    fn a_lock_is_held_by_one_handle_and_others_may_still_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locked");
        std::fs::write(&path, "content").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (one, other) = (open(), open());
        assert!(try_lock(&one).unwrap() && !try_lock(&other).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        // A copy, as a child process has one until it executes its program.
        let _copy = one.try_clone().unwrap();
        unlock(&one).unwrap();
        assert!(try_lock(&other).unwrap());
    }

    #[test]
    fn a_file_that_is_appended_to_can_be_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::options().read(true).append(true).create_new(true).open(&path).unwrap();
        file.write_all(b"one two").unwrap();
        set_len(&file, 4).unwrap();
        file.write_all(b"2").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one 2");
    }

    #[test]
    fn a_file_keeps_its_identity_under_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("one"), "1").unwrap();
        std::fs::write(at("two"), "22").unwrap();
        let id = FileId::of(&File::open(at("one")).unwrap()).unwrap();
        assert_eq!(FileId::at(&at("one")).unwrap(), Some(id));
        assert_ne!(FileId::at(&at("two")).unwrap(), Some(id));
        std::fs::hard_link(at("one"), at("other")).unwrap();
        let status = Status::at(&at("other")).unwrap();
        assert_eq!((status.id, status.len, status.names), (id, 1, 2));
        replace(&at("other"), &at("two")).unwrap();
        assert_eq!(FileId::at(&at("two")).unwrap(), Some(id));
        assert_eq!(FileId::at(&at("none")).unwrap(), None);
    }

    #[test]
    fn what_is_no_file_itself_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "content").unwrap();
        open_itself(File::options().read(true), &path).unwrap();
        let error = open_itself(File::options().read(true).write(true), folder.path()).unwrap_err();
        assert_eq!(NotItself::of(&error), Some(NotItself::NotRegular), "{error}");
        let error = open_itself(File::options().read(true), &folder.path().join("none")).unwrap_err();
        assert_eq!((NotItself::of(&error), error.kind()), (None, ErrorKind::NotFound));
        assert!(free_bytes(folder.path()).unwrap() > 0);
        sync_folder(folder.path()).unwrap();
    }
}
