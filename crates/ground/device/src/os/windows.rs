//! Windows.

use std::path::{Path, PathBuf};

/// The folders of programs where no variable names them.
pub(crate) const PATH_DEFAULT: &str = r"C:\Windows\System32";

/// The next step where access is denied.
pub(crate) const MAY_NOT: &str = "; check its permissions, or run as administrator";

/// The file of a program, if it is there. The ending of programs may be left out.
pub(crate) fn executable(file: &Path) -> Option<PathBuf> {
    let with_ending = file.extension().is_none().then(|| file.with_extension("exe"));
    let found = |file: &PathBuf| file.metadata().is_ok_and(|found| found.is_file());
    with_ending.into_iter().chain([file.to_owned()]).find(found)
}

/// The text of an error with its number, by which the words of Windows, in the user's language, are looked up.
pub(crate) fn words_of(text: &str) -> String {
    text.replace(" (os error ", " (Windows error ")
}
