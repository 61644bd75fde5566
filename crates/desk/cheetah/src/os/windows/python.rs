//! The Python that runs verbs of the Python package.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use cheetah_device::program;

/// How to get one.
pub const INSTALL_PYTHON: &str = "install Python 3.11 or later for 64 bits";

/// The launcher of Windows, which starts the newest Python; else the one on the PATH, which may be a link to the store.
pub fn python_on_path() -> OsString {
    let launcher = program::find("py.exe").map(|_| "py.exe");
    launcher.unwrap_or("python.exe").into()
}

/// Returns the Python into which pip installed the program: that of an environment is beside it, and any other one in the folder above.
pub fn installed_with(program: &Path) -> Option<OsString> {
    let scripts = program.parent()?;
    let prefix = scripts.parent()?;
    let own = scripts.join("python.exe");
    if prefix.join("pyvenv.cfg").is_file() && own.is_file() {
        return Some(own.into());
    }
    let above = prefix.join("python.exe");
    let is_pips = scripts.file_name().is_some_and(|name| name.eq_ignore_ascii_case("Scripts"));
    (is_pips && above.is_file()).then(|| above.into())
}

/// How to install the package.
pub fn how_to_install(python: &OsStr, variable: &str) -> String {
    format!("run {} -m pip install WHEEL, the wheel for Windows, or set {variable} to another Python", python.display())
}
