//! Finding other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::os;

/// The path of a program: `name` itself if it has a slash, else the first executable file of that name in the folders of
/// `PATH` that this user may run. Folders that cannot be read are passed over; the operating system would say that permission
/// is denied.
pub fn find(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| os::PATH_DEFAULT.into());
    find_in(&path, Path::new(name.as_ref()))
}

fn find_in(path: &OsStr, name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 || name.is_absolute() {
        return os::executable(name);
    }
    std::env::split_paths(path).find_map(|folder| os::executable(&folder.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_cannot_be_searched_are_passed_over() {
        let path = OsStr::new("/nonexistent:/dev/null:/proc/1/root/x:/usr/bin:/bin");
        assert!(find_in(path, Path::new("sh")).is_some());
        assert_eq!(find_in(path, Path::new("no-such-program-of-cheetah")), None);
        assert_eq!(find_in(OsStr::new("/nonexistent"), Path::new("/bin/sh")), Some("/bin/sh".into()));
    }
}
