//! Finding other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// The path of a program: `name` itself if it has a slash, else the first executable file of that name in the folders of
/// `PATH` that this user may run. Folders that cannot be read are passed over; the operating system would say that permission
/// is denied.
pub fn find(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    find_in(&path, Path::new(name.as_ref()))
}

fn find_in(path: &OsStr, name: &Path) -> Option<PathBuf> {
    // A file that others may run, but not this user, is passed over, too.
    let is_executable = |file: &Path| {
        file.metadata().is_ok_and(|found| found.is_file()) && rustix::fs::access(file, Access::EXEC_OK).is_ok()
    };
    if name.components().count() > 1 || name.is_absolute() {
        return is_executable(name).then(|| name.to_owned());
    }
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_executable(file))
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
