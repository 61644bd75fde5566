//! Linux.

mod ata;
mod disk;
mod page_cache;
mod watch;

use std::fs::{File, FileType, OpenOptions};
use std::io::Result as IoResult;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use tokio::process::Command;

pub(crate) use disk::{OpenDisk, WHOLE_SECTORS, past_the_cache};
pub(crate) use page_cache::{PageCache, read_cached};
pub(crate) use watch::{TIMES, Watch, store_pages};

use super::What;

/// Who may read disks.
pub(crate) const READER_OF_DISKS: &str = "root";

/// Opens what has this name for reading, without waiting for the other end of a pipe.
pub(crate) fn open_at_once(path: &Path) -> IoResult<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// What has this name, or a link of this name leads to.
pub(crate) fn what_is_at(path: &Path) -> IoResult<What> {
    std::fs::metadata(path).map(|metadata| what(metadata.file_type()))
}

/// What is open, by this name.
pub(crate) fn what_is(file: &File, _name: &Path) -> IoResult<What> {
    file.metadata().map(|metadata| what(metadata.file_type()))
}

fn what(kind: FileType) -> What {
    match () {
        () if kind.is_file() => What::File,
        () if kind.is_block_device() => What::Disk,
        () if kind.is_dir() => What::Folder,
        () if kind.is_fifo() => What::Pipe,
        () if kind.is_socket() => What::Socket,
        () => What::Device,
    }
}

/// The offset of the first byte outside a hole, from `offset` on; `None` if a hole reaches to the end. Fails if the file system
/// does not support this, or the file is a disk.
pub(crate) fn next_data(file: &File, offset: u64) -> IoResult<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The offset of the first byte of a hole, from `offset` on; that of the end if there is none. Fails as [`next_data`].
pub(crate) fn next_hole(file: &File, offset: u64) -> IoResult<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::Hole(offset))?)
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
