//! The Python that runs verbs of the Python package.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// How to get one.
pub const INSTALL_PYTHON: &str = "install Python 3.11 or later (Debian: python3-venv)";

/// The one on the PATH.
pub fn python_on_path() -> OsString {
    "python3".into()
}

/// Returns the Python of the environment that was installed with the program. `make install` makes one for it; pip puts the
/// program into the environment in which it installs the package.
pub fn installed_with(program: &Path) -> Option<OsString> {
    let bin = program.parent()?;
    let prefix = bin.parent()?;
    let own = prefix.join("lib/cheetah/venv/bin/python");
    let shared = bin.join("python");
    if own.exists() {
        return Some(own.into());
    }
    (prefix.join("pyvenv.cfg").is_file() && shared.exists()).then(|| shared.into())
}

/// A file of an environment that a package of the distribution has installed, for certain versions of Python and without pip.
const PACKED: &str = "wheels.sha256";

/// How to install the package. The Python of a distribution takes none, so it gets an environment of its own.
pub fn how_to_install(python: &OsStr, variable: &str) -> String {
    let shown = python.display();
    let prefix = Path::new(python).parent().and_then(Path::parent);
    if prefix.is_some_and(|prefix| prefix.join("pyvenv.cfg").is_file() && !prefix.join(PACKED).is_file()) {
        return format!("run {shown} -m pip install WHEEL (in a checkout of Cheetah: ./python)");
    }
    format!(
        "make an environment for it: python3 -m venv ~/cheetah && ~/cheetah/bin/pip install WHEEL (in a checkout of \
Cheetah: ./python), and set {variable} to ~/cheetah/bin/python"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_python_is_that_of_the_environment_installed_with_the_program() {
        let prefix = tempfile::tempdir().unwrap();
        let at = |name: &str| prefix.path().join(name);
        for folder in ["bin", "lib/cheetah/venv/bin"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let program = at("bin/cheetah");
        fs::write(at("bin/python"), "").unwrap();
        assert_eq!(installed_with(&program), None, "/usr/bin has a Python, too");
        fs::write(at("pyvenv.cfg"), "").unwrap();
        assert_eq!(installed_with(&program), Some(at("bin/python").into()));
        fs::write(at("lib/cheetah/venv/bin/python"), "").unwrap();
        assert_eq!(installed_with(&program), Some(at("lib/cheetah/venv/bin/python").into()));
    }

    #[test]
    fn an_environment_without_pip_is_left_alone_and_another_one_advised() {
        let prefix = tempfile::tempdir().unwrap();
        let python = prefix.path().join("bin/python").into_os_string();
        fs::write(prefix.path().join("pyvenv.cfg"), "").unwrap();
        assert!(how_to_install(&python, "CHEETAH_PYTHON").starts_with("run "));
        fs::write(prefix.path().join(PACKED), "").unwrap();
        assert!(how_to_install(&python, "CHEETAH_PYTHON").starts_with("make an environment for it"));
    }
}
