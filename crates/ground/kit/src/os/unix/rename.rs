//! Renaming without replacing anything.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use super::super::no_replace::rename_at;

/// [`sync_folder`](crate::file::sync_folder) stores the names.
pub(crate) fn replace(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let refusing = || rename_at(CWD, from, to);
    let replacing = || rustix::fs::renameat(CWD, from, CWD, to);
    let is_taken = || match rustix::fs::statat(CWD, to, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    };
    Ok(rename(refusing, is_taken, replacing)?)
}

fn rename(
    refusing: impl FnOnce() -> rustix::io::Result<()>,
    is_taken: impl FnOnce() -> rustix::io::Result<bool>,
    replacing: impl FnOnce() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let renamed = match refusing() {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match is_taken()? {
            true => Err(Errno::EXIST),
            false => replacing(),
        },
        renamed => renamed,
    };
    match renamed {
        // A directory of that name that another process has filled meanwhile.
        Err(Errno::NOTEMPTY) => Err(Errno::EXIST),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_name_that_something_has_is_refused_and_a_free_one_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        let is_refused = || rename_new(&old, &new).unwrap_err().kind() == io::ErrorKind::AlreadyExists;
        fs::write(&old, "ours").unwrap();
        fs::write(&new, "theirs").unwrap();
        assert!(is_refused());
        assert_eq!(fs::read(&new).unwrap(), b"theirs");
        fs::remove_file(&new).unwrap();
        symlink("nothing", &new).unwrap();
        assert!(is_refused());
        fs::remove_file(&new).unwrap();
        rename_new(&old, &new).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"ours");
        assert!(!old.exists());
    }

    #[test]
    fn a_file_system_that_cannot_refuse_to_replace_is_asked_for_the_name_first() {
        for unsupported in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
            let replaced = || panic!("the name is taken");
            assert_eq!(rename(|| Err(unsupported), || Ok(true), replaced), Err(Errno::EXIST));
            assert_eq!(rename(|| Err(unsupported), || Err(Errno::ACCESS), replaced), Err(Errno::ACCESS));
            assert_eq!(rename(|| Err(unsupported), || Ok(false), || Ok(())), Ok(()));
            assert_eq!(rename(|| Err(unsupported), || Ok(false), || Err(Errno::NOTEMPTY)), Err(Errno::EXIST));
        }
        let unasked = || panic!("the file system has refused for another reason");
        assert_eq!(rename(|| Err(Errno::NOSPC), unasked, || panic!("not renamed")), Err(Errno::NOSPC));
    }
}
