//! Renaming without replacing anything: a move that is not told to replace, and does not copy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Storage::FileSystem::{MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH, MoveFileExW};

use super::checked;
use super::path::wide;

pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    rename(from, to, MOVEFILE_WRITE_THROUGH)
}

/// The names are stored when it returns, since a folder is not flushed. A file that programs have open takes another call, which
/// does not store them, and which only NTFS has.
pub(crate) fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let replaced = rename(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
    replaced.or_else(|_| fs::rename(from, to)).or_else(|error| replace_open(from, to).map_err(|_| error))
}

/// Replaces a file that programs have open, on a file system that does not replace such a file in one step: it is moved aside first. A
/// crash between the two moves leaves it under the other name.
fn replace_open(from: &Path, to: &Path) -> io::Result<()> {
    let mut aside = to.as_os_str().to_owned();
    aside.push(format!(".replaced-{:016x}", crate::random::bits_64()?));
    let aside = PathBuf::from(aside);
    rename_new(to, &aside)?;
    if let Err(error) = rename_new(from, to) {
        rename_new(&aside, to)?;
        return Err(error);
    }
    fs::remove_file(&aside)
}

fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (wide(from)?, wide(to)?);
    // SAFETY: both names end with a zero.
    checked(unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), flags) })
}

#[cfg(test)]
mod tests {
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
        assert_eq!(fs::read(&new).unwrap(), b"later");
    }

    #[test]
    fn a_file_that_is_open_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "ours").unwrap();
        fs::write(&new, "theirs").unwrap();
        let open = fs::File::open(&new).unwrap();
        replace(&old, &new).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"ours");
        drop(open);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
