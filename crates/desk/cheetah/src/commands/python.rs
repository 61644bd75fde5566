//! Verbs that the Python package implements. Cheetah replaces itself by Python (`exec`).

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use cheetah_device::os_error;

use crate::desk::Desk;
use crate::failure::{Context, Failure, Result};
use crate::os::{self, Feature};
use crate::ui::Ui;

/// Names another Python than the installed one.
const PYTHON: &str = "CHEETAH_PYTHON";

/// Prints which of the module and the packages in its arguments a Python lacks, one per line.
const PROBE: &str = "
import sys
from importlib.util import find_spec
module, *packages = sys.argv[1:]
if sys.version_info < (3, 11):
    print('Python-3.11')
elif find_spec('cheetah') is None or find_spec(module) is None:
    print(module)
else:
    for name in packages:
        if find_spec(name) is None:
            print(name)
";

/// Makes Python load no modules from the current directory, which may hold a suspect's files. Processes that it starts
/// inherit that.
pub const SAFE_PATH: &str = "-P";

/// The Python that the variable names; else that of the environment which was installed with this program; else the first
/// on the PATH.
fn python() -> OsString {
    let named = std::env::var_os(PYTHON).filter(|path| !path.is_empty());
    let installed = || std::env::current_exe().ok().and_then(|program| installed_with(&program));
    named.or_else(installed).unwrap_or_else(|| "python3".into())
}

/// Returns the Python of the environment that was installed with the program. `make install` makes one for it; pip puts the
/// program into the environment in which it installs the package.
fn installed_with(program: &Path) -> Option<OsString> {
    let bin = program.parent()?;
    let prefix = bin.parent()?;
    let own = prefix.join("lib/cheetah/venv/bin/python");
    let shared = bin.join("python");
    if own.exists() {
        return Some(own.into());
    }
    (prefix.join("pyvenv.cfg").is_file() && shared.exists()).then(|| shared.into())
}

/// The arguments of such a verb.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// The arguments for Python; the verb's help describes them.
    #[arg(
        hide = true,
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

/// A verb that Python implements.
#[derive(Debug)]
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// The module that Python runs.
    pub module: &'static str,
    /// The packages that it imports.
    pub packages: &'static [&'static str],
}

impl Verb {
    /// Replaces this process by Python, which then gets the signals and sets the exit code. Returns only if Python cannot be
    /// started.
    pub fn run(&self, words: Words, desk: &Desk, ui: Ui) -> Result<()> {
        os::offers(Feature::Python)?;
        crate::ui::stdout::check()?;
        let python = self.usable()?;
        let mut command = Command::new(&python);
        let mut words = words.words;
        // clap has consumed a --json before the verb. What follows -- is another program's.
        if ui.is_json() {
            let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
            words.insert(end, "--json".into());
        }
        command.args([SAFE_PATH, "-m", self.module]).args(words);
        // Not as an argument: an invitation is secret, and other users can read arguments.
        if let Some(room) = &desk.room {
            command.env(cheetah_room::resolve::VARIABLE, room);
        }
        command.envs(desk.keyring.environment());
        if let Ok(ours) = std::env::current_exe() {
            command.env("CHEETAH_BINARY", ours);
        }
        crate::ui::stderr::flush(crate::ui::stderr::FLUSH_TIMEOUT);
        Err(os::become_program(command)).context(format_args!("cannot start {}", python.display()))
    }

    /// Returns the Python, if it has the module and packages of the verb, so that a missing one is reported in one sentence
    /// and not by a traceback.
    pub fn usable(&self) -> Result<OsString, Unusable> {
        let python = python();
        let (shown, name) = (python.display(), self.name);
        let unusable =
            |why: String, next: String| Unusable { finding: format!("cheetah {name} runs in Python, and {why}"), next };
        let probed = Command::new(&python).args([SAFE_PATH, "-c", PROBE, self.module]).args(self.packages).output();
        let probed = match probed {
            // The operating system says that permission is denied if a folder of PATH cannot be read.
            Err(error) if error.kind() == ErrorKind::NotFound || cheetah_device::program::find(&python).is_none() => {
                let next = format!("install Python 3.11 or later (Debian: python3-venv), or set {PYTHON} to its path");
                return Err(unusable(format!("there is no {shown}"), next));
            }
            Err(error) => {
                let why = format!("{shown} cannot be started: {}", os_error::describe(&error));
                return Err(unusable(why, format!("set {PYTHON} to another Python")));
            }
            Ok(probed) => probed,
        };
        let said = String::from_utf8_lossy(&probed.stdout);
        let missing: Vec<_> = said.split_whitespace().collect();
        if missing.is_empty() && probed.status.success() {
            return Ok(python);
        }
        let what = if missing.is_empty() { "a working package cheetah".to_owned() } else { missing.join(", ") };
        Err(unusable(format!("{shown} lacks {what}"), how_to_install(&python)))
    }
}

/// A file of an environment that a package of the distribution has installed, for certain versions of Python and without pip.
const PACKED: &str = "wheels.sha256";

/// How to install the package. The Python of a distribution takes none, so it gets an environment of its own.
fn how_to_install(python: &OsStr) -> String {
    let shown = python.display();
    let prefix = Path::new(python).parent().and_then(Path::parent);
    if prefix.is_some_and(|prefix| prefix.join("pyvenv.cfg").is_file() && !prefix.join(PACKED).is_file()) {
        return format!("run {shown} -m pip install WHEEL (in a checkout of Cheetah: ./python)");
    }
    format!(
        "make an environment for it: python3 -m venv ~/cheetah && ~/cheetah/bin/pip install WHEEL (in a checkout of \
Cheetah: ./python), and set {PYTHON} to ~/cheetah/bin/python"
    )
}

/// Why a verb cannot run in Python.
#[derive(Debug)]
pub struct Unusable {
    /// What is missing.
    pub finding: String,
    /// What to do about it.
    pub next: String,
}

impl From<Unusable> for Failure {
    fn from(why: Unusable) -> Self {
        Self::failed(format!("{}; {}", why.finding, why.next))
    }
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
        assert!(how_to_install(&python).starts_with("run "));
        fs::write(prefix.path().join(PACKED), "").unwrap();
        assert!(how_to_install(&python).starts_with("make an environment for it"));
    }
}
