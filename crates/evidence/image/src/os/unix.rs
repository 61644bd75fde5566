//! Linux, FreeBSD and macOS.

use std::fs::{File, OpenOptions};
use std::io::Result as IoResult;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tokio::process::Command;

/// Who may read disks.
pub(crate) const READER_OF_DISKS: &str = "root";

/// Opens what has this name for reading, without waiting for the other end of a pipe.
pub(crate) fn open_at_once(path: &Path) -> IoResult<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Whether a program can serve an image on a Unix socket.
pub(crate) const HAS_UNIX_SOCKETS: bool = true;

/// Returns a path of the same file in UTF-8, which qemu-nbd requires: through a link in `folder`, if necessary.
pub(crate) fn path_in_utf8(path: &Path, folder: &Path) -> IoResult<PathBuf> {
    use std::os::unix::fs::symlink;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path.to_owned()) };
    let link = folder.join("image");
    match (path.to_str(), name.to_str()) {
        (Some(_), _) => Ok(path.to_owned()),
        // The folder is linked to, so that files beside it are found in it.
        (None, Some(name)) => symlink(parent, &link).map(|()| link.join(name)),
        (None, None) => symlink(path, &link).map(|()| link),
    }
}

/// Has a program be out of reach of Ctrl-C in this process's terminal.
pub(crate) fn apart_from_terminal(command: &mut Command) -> &mut Command {
    command.process_group(0)
}
