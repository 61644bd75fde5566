//! The numbers of errors: those of the system itself.

use std::io;

use rustix::io::Errno;

pub(crate) fn of(error: &io::Error) -> Option<i32> {
    error.raw_os_error()
}

/// EIO, and the errors that the kernel's block layer returns for errors of the medium, the target and protection information
/// (blk_errors in block/blk-core.c).
pub(crate) fn is_of_medium(error: &io::Error) -> bool {
    const MEDIUM: [Errno; 4] = [Errno::IO, Errno::NODATA, Errno::REMOTEIO, Errno::ILSEQ];
    Errno::from_io_error(error).is_some_and(|errno| MEDIUM.contains(&errno))
}
