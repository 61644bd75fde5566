//! Windows.

mod disk;

use std::fs::File;
use std::io::Result as IoResult;
use std::path::{Path, PathBuf};

use cheetah_windows::name::{Name, is_pipe};
use tokio::process::Command;

pub(crate) use disk::{OpenDisk, WHOLE_SECTORS, past_the_cache};

use super::What;

/// `CREATE_NEW_PROCESS_GROUP` (processthreadsapi.h).
const NEW_PROCESS_GROUP: u32 = 0x0000_0200;

/// Who may read disks.
pub(crate) const READER_OF_DISKS: &str = "an administrator";

/// Opens what has this name for reading. Other programs may go on to read, write and remove it.
pub(crate) fn open_at_once(path: &Path) -> IoResult<File> {
    File::open(path)
}

/// What has this name, or a link of this name leads to. Devices are known by their names only.
pub(crate) fn what_is_at(path: &Path) -> IoResult<What> {
    match device(path) {
        Some(device) => Ok(device),
        None => std::fs::metadata(path).map(|metadata| what(metadata.is_file(), metadata.is_dir())),
    }
}

/// What is open, by this name.
pub(crate) fn what_is(file: &File, name: &Path) -> IoResult<What> {
    match device(name) {
        Some(device) => Ok(device),
        None => file.metadata().map(|metadata| what(metadata.is_file(), metadata.is_dir())),
    }
}

/// What the name of a device stands for; `None` for the name of a file.
fn device(path: &Path) -> Option<What> {
    let text = path.to_str()?;
    match is_pipe(text) {
        true => Some(What::Pipe),
        false => Name::of(text).map(|_| What::Disk),
    }
}

fn what(is_file: bool, is_folder: bool) -> What {
    match () {
        () if is_file => What::File,
        () if is_folder => What::Folder,
        () => What::Device,
    }
}

/// A write through a mapping changes the times of a file when its pages are stored; there is no way to ask for that without the
/// right to write to it.
pub(crate) fn store_pages(_file: &File) {}

/// Whether a program can serve an image on a Unix socket.
pub(crate) const HAS_UNIX_SOCKETS: bool = false;

/// Names are 16-bit units, which are almost always UTF-16: there is nothing to do.
pub(crate) fn path_in_utf8(path: &Path, _folder: &Path) -> IoResult<PathBuf> {
    Ok(path.to_owned())
}

/// Has a program be out of reach of Ctrl-C in this process's console.
pub(crate) fn apart_from_terminal(command: &mut Command) -> &mut Command {
    command.creation_flags(NEW_PROCESS_GROUP)
}
