//! Opening files by name where anything may be under that name: a pipe, a socket, a device or a link.
//!
//! Opening a named pipe waits for its other end, and nothing can end that wait in a thread. So nothing here waits: what is
//! neither a file nor a disk is refused at once. A file that the user did not name, such as a further part of an image,
//! must be a regular file itself, or a link could make any file of this machine evidence.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::own_file::not_following_links;

/// What is in the place of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAFile {
    /// A folder.
    #[error("it is a directory, not a file")]
    Directory,
    /// A pipe.
    #[error("it is a named pipe, not a file")]
    Pipe,
    /// A socket.
    #[error("it is a socket, not a file")]
    Socket,
    /// A link, which could lead to any file.
    #[error("it is a symbolic link, which is not followed; put the file itself in its place")]
    Link,
    /// A device.
    #[error("it is a device, not a file")]
    Device,
    /// A socket, or a device without a driver.
    #[error("it is not a regular file")]
    Other,
}

/// Opens the file or the disk that the user named for reading. A link is followed.
///
/// # Errors
///
/// Those of open(2); `InvalidInput` for anything but a regular file or a block device.
pub fn open_named(path: &Path) -> IoResult<File> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Err(refusal(&metadata));
    }
    // Should a pipe have taken its place meanwhile, opening it does not wait either.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() || metadata.file_type().is_block_device() { Ok(file) } else { Err(refusal(&metadata)) }
}

/// Opens a regular file that the user named for reading. A link is followed.
///
/// # Errors
///
/// Those of open(2); `InvalidInput` for anything else.
pub fn open_file(path: &Path) -> IoResult<File> {
    let file = open_named(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok(file) } else { Err(refusal(&metadata)) }
}

/// Opens a file that belongs to the one that the user named, for reading. It must be a regular file itself.
///
/// # Errors
///
/// Those of open(2); `InvalidInput` for a link and anything else that is not a regular file.
pub fn open_beside(path: &Path) -> IoResult<File> {
    let opened = not_following_links(OpenOptions::new().read(true)).open(path);
    let file = opened.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP) => invalid(NotAFile::Link),
        Some(Errno::NXIO) => invalid(NotAFile::Other),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok(file) } else { Err(refusal(&metadata)) }
}

fn invalid(why: NotAFile) -> IoError {
    IoError::new(ErrorKind::InvalidInput, why)
}

fn refusal(metadata: &Metadata) -> IoError {
    let kind = metadata.file_type();
    invalid(match () {
        () if kind.is_dir() => NotAFile::Directory,
        () if kind.is_fifo() => NotAFile::Pipe,
        () if kind.is_socket() => NotAFile::Socket,
        () => NotAFile::Device,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn what_is_not_a_file_is_refused_at_once_and_links_are_followed_only_where_the_user_named_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "content").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(open_named(&at("file")).is_ok() && open_named(&at("link")).is_ok() && open_beside(&at("file")).is_ok());
        let is = |opened: IoResult<File>| {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            *error.get_ref().unwrap().downcast_ref::<NotAFile>().unwrap()
        };
        for (path, what) in [
            (at("pipe"), NotAFile::Pipe),
            (dir.path().into(), NotAFile::Directory),
            ("/dev/null".into(), NotAFile::Device),
        ] {
            for opened in [open_named(&path), open_file(&path), open_beside(&path)] {
                assert_eq!(is(opened), what, "{path:?}");
            }
        }
        assert_eq!(
            [is(open_named(&at("socket"))), is(open_beside(&at("socket")))],
            [NotAFile::Socket, NotAFile::Other]
        );
        assert_eq!(is(open_beside(&at("link"))), NotAFile::Link);
        assert_eq!(open_named(&at("absent")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
