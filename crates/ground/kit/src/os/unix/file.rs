//! Files: what is the same on all these systems.

use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::{FileId, NotItself, Status};

pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    FileExt::read_at(file, bytes, offset)
}

pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    FileExt::write_at(file, bytes, offset)
}

pub(crate) fn status_of(file: &File) -> io::Result<Status> {
    file.metadata().map(|metadata| status(&metadata))
}

pub(crate) fn status_at(path: &Path) -> io::Result<Status> {
    path.metadata().map(|metadata| status(&metadata))
}

pub(crate) fn status_of_itself(path: &Path) -> io::Result<Status> {
    path.symlink_metadata().map(|metadata| status(&metadata))
}

fn status(metadata: &Metadata) -> Status {
    Status {
        id: FileId { volume: metadata.dev(), number: metadata.ino().into() },
        len: metadata.len(),
        names: metadata.nlink(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

pub(crate) fn open_itself(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a named pipe would wait for its other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits().cast_signed()).open(path)
}

pub(crate) fn open_without_following(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

pub(crate) fn not_itself(error: &io::Error) -> Option<NotItself> {
    match Errno::from_io_error(error)? {
        // FreeBSD says that a link has too many links.
        Errno::LOOP | Errno::MLINK => Some(NotItself::Link),
        // Of a socket, Linux says NXIO, and the others that they do not support this.
        Errno::ISDIR | Errno::NXIO | Errno::OPNOTSUPP => Some(NotItself::NotRegular),
        _ => None,
    }
}

pub(crate) fn of_its_owner_alone(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

pub(crate) fn others_may_use(file: &File) -> io::Result<bool> {
    file.metadata().map(|metadata| metadata.mode() & 0o077 != 0)
}

pub(crate) fn as_the_umask_allows() -> Option<Permissions> {
    Some(Permissions::from_mode(0o666))
}

pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

pub(crate) fn unlock(file: &File) -> io::Result<()> {
    file.unlock()
}

pub(crate) fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)
}

pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Every file is.
pub(crate) fn make_sparse(_file: &File) -> io::Result<()> {
    Ok(())
}

pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    // Some network file systems report no blocks at all.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_not_followed_and_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        let error = open_itself(File::options().read(true), &at("link")).unwrap_err();
        assert_eq!(not_itself(&error), Some(NotItself::Link));
        let (pipe, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), pipe, mode, 0).unwrap();
        assert!(!open_itself(File::options().read(true), &at("pipe")).unwrap().metadata().unwrap().is_file());
        let error = open_itself(File::options().write(true), &at("pipe")).unwrap_err();
        assert_eq!(not_itself(&error), Some(NotItself::NotRegular));
    }

    #[test]
    fn a_file_of_its_owner_alone_is_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let file = of_its_owner_alone(File::options().write(true).create_new(true)).open(&path).unwrap();
        assert!(!others_may_use(&file).unwrap());
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
        assert!(others_may_use(&file).unwrap());
    }
}
