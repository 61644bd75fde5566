//! FreeBSD and macOS. Nothing here has been run yet: it compiles and links.

mod disk;
#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "macos")]
mod macos;

use std::fs::{File, FileType};
use std::io::{ErrorKind, Result as IoResult};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

pub(crate) use disk::{OpenDisk, WHOLE_SECTORS, known_of, past_the_cache};

use super::{What, open_at_once};

#[cfg(target_os = "freebsd")]
use freebsd as system;
#[cfg(target_os = "macos")]
use macos as system;

/// What has this name, or a link of this name leads to. A device is asked whether it is a disk; one that may not be opened is taken
/// for a disk, so that it is said what reading it takes.
pub(crate) fn what_is_at(path: &Path) -> IoResult<What> {
    let is_disk = || match open_at_once(path) {
        Ok(device) => disk::is_disk(&device),
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    };
    std::fs::metadata(path).map(|metadata| what(metadata.file_type(), is_disk))
}

/// What is open, by this name.
pub(crate) fn what_is(file: &File, _name: &Path) -> IoResult<What> {
    file.metadata().map(|metadata| what(metadata.file_type(), || disk::is_disk(file)))
}

/// Disks are character devices on FreeBSD, and on macOS devices of both kinds.
fn what(kind: FileType, is_disk: impl FnOnce() -> bool) -> What {
    match () {
        () if kind.is_file() => What::File,
        () if kind.is_dir() => What::Folder,
        () if kind.is_fifo() => What::Pipe,
        () if kind.is_socket() => What::Socket,
        () if is_disk() => What::Disk,
        () => What::Device,
    }
}

/// A write through a mapping changes the times of a file when its pages are stored. Only fsync(2) asks for that, which stores more
/// than those.
pub(crate) fn store_pages(_file: &File) {}
