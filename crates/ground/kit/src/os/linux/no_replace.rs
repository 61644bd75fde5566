//! A call that renames, and refuses to replace anything: `renameat2(2)`.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::RenameFlags;

/// Fails with EXIST if the name is taken, and with INVAL, NOSYS or OPNOTSUPP if the file system cannot refuse.
pub(crate) fn rename_at(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE)
}
