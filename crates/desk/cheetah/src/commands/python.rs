//! Verbs that the Python package implements. Cheetah replaces itself by Python (`exec`).

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// Names another Python than the first on the PATH.
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
const SAFE_PATH: &str = "-P";

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
    /// Its name, and that of the extra of the Python package with its dependencies.
    pub name: &'static str,
    /// The module that Python runs.
    pub module: &'static str,
    /// The packages that it imports.
    pub packages: &'static [&'static str],
}

impl Verb {
    /// Replaces this process by Python, which then gets the signals and sets the exit code. Returns only if Python cannot be
    /// started.
    pub fn run(&self, words: Words, room: Option<&str>, ui: Ui) -> Result<()> {
        crate::ui::stdout::check()?;
        let python = std::env::var_os(PYTHON).filter(|path| !path.is_empty()).unwrap_or_else(|| "python3".into());
        self.check(&python)?;
        let mut command = Command::new(&python);
        command.args([SAFE_PATH, "-m", self.module]).args(words.words);
        // clap has consumed a --json before the verb.
        if ui.is_json() {
            command.arg("--json");
        }
        // Not as an argument: an invitation is secret, and other users can read arguments.
        if let Some(room) = room {
            command.env(cheetah_room::resolve::VARIABLE, room);
        }
        command.envs(cheetah_seal::keyring::environment());
        if let Ok(ours) = std::env::current_exe() {
            command.env("CHEETAH_BINARY", ours);
        }
        crate::ui::stderr::flush(crate::ui::stderr::FLUSH_TIMEOUT);
        Err(command.exec()).context(format_args!("cannot start {}", python.display()))
    }

    /// Checks that this Python has the module and packages of the verb, so that a missing one is reported in one
    /// sentence and not by a traceback.
    fn check(&self, python: &OsStr) -> Result<()> {
        let (shown, name) = (python.display(), self.name);
        let probed = Command::new(python).args([SAFE_PATH, "-c", PROBE, self.module]).args(self.packages).output();
        let probed = match probed {
            // The operating system says that permission is denied if a folder of PATH cannot be read.
            Err(error) if error.kind() == ErrorKind::NotFound || cheetah_device::program::find(python).is_none() => {
                return Err(Failure::failed(format!(
                    "cheetah {name} runs in Python, and there is no {shown}; install Python 3.11 or later, or set {PYTHON} \
                     to its path"
                )));
            }
            probed => probed.context(format_args!("cannot start {shown}"))?,
        };
        let said = String::from_utf8_lossy(&probed.stdout);
        let missing: Vec<_> = said.split_whitespace().collect();
        if missing.is_empty() && probed.status.success() {
            return Ok(());
        }
        let what = if missing.is_empty() { "a working package cheetah".to_owned() } else { missing.join(", ") };
        Err(Failure::failed(format!(
            "cheetah {name} runs in Python, and {shown} lacks {what}; in a checkout of Cheetah, run \
             {shown} -m pip install './python[{name}]', or set {PYTHON} to a Python that has it"
        )))
    }
}
