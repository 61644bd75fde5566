//! Linux.

mod ata;
mod disk;
mod page_cache;
mod watch;

use std::fs::{File, FileType};
use std::io::Result as IoResult;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

pub(crate) use disk::{OpenDisk, WHOLE_SECTORS, past_the_cache};
pub(crate) use page_cache::{PageCache, read_cached};
pub(crate) use watch::{TIMES, Watch, store_pages};

use super::What;

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
