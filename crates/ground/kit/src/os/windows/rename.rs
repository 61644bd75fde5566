//! Renaming without replacing anything: a move that is not told to replace, and does not copy.

use std::io;
use std::path::Path;

use windows_sys::Win32::Storage::FileSystem::{MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH, MoveFileExW};

use super::checked;
use super::path::wide;

pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    rename(from, to, MOVEFILE_WRITE_THROUGH)
}

/// The names are stored when it returns, since a folder is not flushed. A file that programs have open takes another call, which
/// does not store them.
pub(crate) fn replace(from: &Path, to: &Path) -> io::Result<()> {
    rename(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH).or_else(|_| std::fs::rename(from, to))
}

fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (wide(from)?, wide(to)?);
    // SAFETY: both names end with a zero.
    checked(unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), flags) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_name_that_something_has_is_refused_and_a_free_one_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "ours").unwrap();
        fs::write(&new, "theirs").unwrap();
        assert_eq!(rename_new(&old, &new).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&new).unwrap(), b"theirs");
        fs::remove_file(&new).unwrap();
        rename_new(&old, &new).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"ours");
        fs::write(&old, "later").unwrap();
        replace(&old, &new).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"later");
        assert_eq!(replace(&old, &new).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
