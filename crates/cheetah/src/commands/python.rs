//! Verbs whose work the Python package does: the process becomes Python's.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// Where to find another Python than the first on the PATH.
const PYTHON: &str = "CHEETAH_PYTHON";

/// Says what a Python lacks of the module and the packages it is told, a word a line.
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

/// Python takes no modules from the current directory, which may be full of a suspect's files. It hands that on to the
/// processes it starts.
const SAFE_PATH: &str = "-P";

/// What such a verb is told.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// What is for Python; the verb's help names it.
    #[arg(
        hide = true,
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// A verb of which Python does the work.
#[derive(Debug)]
pub struct Verb {
    /// As it is called, and as the package's extra is called that brings what it needs.
    pub name: &'static str,
    /// What Python runs.
    pub module: &'static str,
    /// What that imports, as Python calls it.
    pub packages: &'static [&'static str],
}

impl Verb {
    /// Runs it with these words: from here on this process is Python's, and so are its exit code and the signals it
    /// gets. Returns only where it could not be started.
    pub fn run(&self, words: Words, ui: Ui) -> Result<()> {
        let python = std::env::var_os(PYTHON).filter(|path| !path.is_empty()).unwrap_or_else(|| "python3".into());
        self.look(&python)?;
        let mut command = Command::new(&python);
        command.args([SAFE_PATH, "-m", self.module]).args(words.words);
        // Before the words it was for all verbs, and has been taken.
        if ui.is_json() {
            command.arg("--json");
        }
        if let Ok(ours) = std::env::current_exe() {
            command.env("CHEETAH_BINARY", ours);
        }
        crate::ui::stderr::flush(crate::ui::STDERR_PATIENCE);
        Err(Failure::failed(format!("cannot start {}: {}", python.display(), command.exec())))
    }

    /// Whether this Python can do it. Better one sentence now than a traceback later.
    fn look(&self, python: &OsStr) -> Result<()> {
        let (shown, name) = (python.display(), self.name);
        let probed = Command::new(python).args([SAFE_PATH, "-c", PROBE, self.module]).args(self.packages).output();
        let probed = match probed {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Failure::failed(format!(
                    "cheetah {name} runs in Python, and there is no {shown} here; install Python 3.11 or later, or say \
                     in {PYTHON} where it is"
                )));
            }
            probed => probed.context(format_args!("cannot start {shown}"))?,
        };
        let said = String::from_utf8_lossy(&probed.stdout);
        let missing: Vec<_> = said.split_whitespace().collect();
        if missing.is_empty() && probed.status.success() {
            return Ok(());
        }
        let what = if missing.is_empty() { "a package cheetah that works".to_owned() } else { missing.join(", ") };
        Err(Failure::failed(format!(
            "cheetah {name} runs in Python, and {shown} lacks {what}; in a checkout of Cheetah, run \
             {shown} -m pip install './python[{name}]', or say in {PYTHON} which Python has it"
        )))
    }
}
