//! A call that renames, and refuses to replace anything.

use std::os::fd::BorrowedFd;
use std::path::Path;

/// Fails with EXIST if the name is taken, and with INVAL, NOSYS or OPNOTSUPP if the file system cannot refuse. By
/// `renameatx_np(2)`.
#[cfg(target_os = "macos")]
pub(crate) fn rename_at(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(directory, from, directory, to, rustix::fs::RenameFlags::NOREPLACE)
}

/// As above. A second name is refused if it is taken; then the first goes. A folder has one name only, so that cannot be done with
/// it, nor in a file system without hard links.
#[cfg(target_os = "freebsd")]
pub(crate) fn rename_at(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> rustix::io::Result<()> {
    use rustix::fs::{AtFlags, linkat, unlinkat};
    use rustix::io::Errno;

    match linkat(directory, from, directory, to, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => return Err(Errno::NOSYS),
        Err(errno) => return Err(errno),
    }
    unlinkat(directory, from, AtFlags::empty()).inspect_err(|_| {
        // The file keeps the name that it had.
        let _ = unlinkat(directory, to, AtFlags::empty());
    })
}
