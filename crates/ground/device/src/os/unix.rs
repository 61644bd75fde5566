//! Linux and its kin.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// The folders of programs where no variable names them.
pub(crate) const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// The next step where access is denied.
pub(crate) const MAY_NOT: &str = "; check its owner and mode, or run as root";

/// The file of a program that this user may run, if it is there. A file that others may run, but not this user, is passed over,
/// too.
pub(crate) fn executable(file: &Path) -> Option<PathBuf> {
    let is_executable =
        file.metadata().is_ok_and(|found| found.is_file()) && rustix::fs::access(file, Access::EXEC_OK).is_ok();
    is_executable.then(|| file.to_owned())
}

/// The text of an error without its number: the words say all.
pub(crate) fn words_of(text: &str) -> String {
    text.rfind(" (os error ").map_or(text, |at| &text[..at]).to_owned()
}
