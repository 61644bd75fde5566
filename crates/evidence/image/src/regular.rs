//! Opening files by name where anything may be under that name: a pipe, a socket, a device or a link.
//!
//! Opening a named pipe waits for its other end, and nothing can end that wait in a thread. So nothing here waits: what is
//! neither a file nor a disk is refused at once. A file that the user did not name, such as a further part of an image,
//! must be a regular file itself, or a link could make any file of this machine evidence.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::path::Path;

use cheetah_kit::file::{NotItself, open_itself};

use crate::os::{What, open_at_once, what_is, what_is_at};

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
    let can_be_read = |what| if matches!(what, What::File | What::Disk) { Ok(()) } else { Err(refusal(what)) };
    can_be_read(what_is_at(path)?)?;
    // Should a pipe have taken its place meanwhile, opening it does not wait either.
    let file = open_at_once(path)?;
    can_be_read(what_is(&file, path)?).map(|()| file)
}

/// Opens a regular file that the user named for reading. A link is followed.
///
/// # Errors
///
/// Those of open(2); `InvalidInput` for anything else.
pub fn open_file(path: &Path) -> IoResult<File> {
    must_be_file(open_named(path)?, path)
}

/// Opens a file that belongs to the one that the user named, for reading. It must be a regular file itself.
///
/// # Errors
///
/// Those of open(2); `InvalidInput` for a link and anything else that is not a regular file.
pub fn open_beside(path: &Path) -> IoResult<File> {
    let file = open_itself(File::options().read(true), path).map_err(|error| match NotItself::of(&error) {
        Some(NotItself::Link) => invalid(NotAFile::Link),
        Some(NotItself::NotRegular) => invalid(NotAFile::Other),
        None => error,
    })?;
    must_be_file(file, path)
}

fn must_be_file(file: File, path: &Path) -> IoResult<File> {
    match what_is(&file, path)? {
        What::File => Ok(file),
        other => Err(refusal(other)),
    }
}

fn invalid(why: NotAFile) -> IoError {
    IoError::new(ErrorKind::InvalidInput, why)
}

fn refusal(what: What) -> IoError {
    invalid(match what {
        What::Folder => NotAFile::Directory,
        What::Pipe => NotAFile::Pipe,
        What::Socket => NotAFile::Socket,
        What::File | What::Disk | What::Device => NotAFile::Device,
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
