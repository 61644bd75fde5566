//! Renaming without replacing anything.

use std::io;
use std::path::Path;

use crate::os;

/// Renames a file or a directory to a name that nothing has.
///
/// Some file systems, such as NFS, cannot refuse to replace. There the name is looked for before; a file that another
/// process gives that name between the two is replaced.
///
/// # Errors
///
/// Of the kind [`AlreadyExists`](io::ErrorKind::AlreadyExists) if something has the name, even a link without a target;
/// that of the operating system if it cannot be renamed for another reason.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    os::rename::rename_new(from, to)
}
