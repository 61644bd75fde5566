//! `cheetah triage`: what is on a source. The work is done by the Python package, which this becomes.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// Where to find another Python than the first on the PATH.
const PYTHON: &str = "CHEETAH_PYTHON";

/// Says what a Python lacks, a word a line.
const PROBE: &str = "
import sys
from importlib.util import find_spec
if sys.version_info < (3, 11):
    print('Python-3.11')
elif find_spec('cheetah') is None or find_spec('cheetah.triage') is None:
    print('cheetah.triage')
else:
    for name in ('pytsk3', 'pyarrow', 'numpy', 'yara_x', 'jinja2', 'rich'):
        if find_spec(name) is None:
            print(name)
";

/// What `triage` is told.
#[derive(Debug, clap::Args)]
#[command(about = "List, hash, type and search what is on a source, and report what to look at first")]
#[command(
    override_usage = "cheetah triage SOURCE --out DIR [OPTIONS]",
    long_about = "Lists, hashes, types and searches what is on a source, and reports what to look at first.

Every file system is listed as fls lists it, deleted files too; files are read in the order of what they promise, then \
hashed, recognised by their content, compared with hash lists, and searched; then what belongs to no file is searched. \
DIR gets report.html, and bodyfile.txt, files.parquet, timeline.parquet, findings.parquet and summary.json. The same \
command goes on where it was interrupted.

  cheetah triage case42.drive --out case42
  cheetah triage nbd://suspect/sda --out quick --quick --keywords words.txt
  cheetah triage case42.drive --out case42 --known nsrl.txt --wanted wanted.txt --yara rules.yar
  cheetah triage case42.drive --out case42 --scheduler tcp://lab1:8786",
    after_help = "What it is told:
  SOURCE               A drive file, an image, a disk, or an nbd:// or iscsi:// URI
  --out DIR            Folder for the result
  --quick              List everything, but read only the files ranked highest
  --workers N          Worker processes; one for each processor unless told
  --scheduler URI      A Dask scheduler whose workers do the work instead: tcp://host:port
  --known FILE         Hash list of files to set aside
  --wanted FILE        Hash list of files to look for
  --keywords FILE      Words to look for, one a line
  --yara FILE          YARA rules
  --hash LIST          Hashes to make [default: md5,sha1,sha256]
  --max-file SIZE      Of a larger file only so much is read
  --no-unallocated     Do not search what belongs to no file
  --fresh              Start over, and throw away what an earlier run left in DIR
  --json               Progress and summary as JSON, a line each

It runs in Python 3.11 or later with the package in python/ of the sources:
  pip install './python[triage]'
CHEETAH_PYTHON says which Python; python3 on the PATH otherwise. docs/triage.md has more."
)]
pub struct Args {
    /// What is for Python; the help names it.
    #[arg(
        hide = true,
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Python takes no modules from the current directory, which may be full of a suspect's files. It hands that on to the
/// processes it starts.
const SAFE_PATH: &str = "-P";

/// Runs it: from here on this process is Python's, and so are its exit code and the signals it gets.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let python = std::env::var_os(PYTHON).filter(|path| !path.is_empty()).unwrap_or_else(|| "python3".into());
    look(&python)?;
    let mut command = Command::new(&python);
    command.args([SAFE_PATH, "-m", "cheetah.triage"]).args(args.words);
    // Before the words it was for all verbs, and has been taken.
    if ui.is_json() {
        command.arg("--json");
    }
    if let Ok(ours) = std::env::current_exe() {
        command.env("CHEETAH_BINARY", ours);
    }
    Err(Failure::failed(format!("cannot start {}: {}", python.display(), command.exec())))
}

/// Whether this Python can do it. Better one sentence now than a traceback later.
fn look(python: &OsString) -> Result<()> {
    let shown = python.display();
    let probed = Command::new(python).args([SAFE_PATH, "-c", PROBE]).output();
    let probed = match probed {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::failed(format!(
                "cheetah triage runs in Python, and there is no {shown} here; install Python 3.11 or later, or say in \
                 {PYTHON} where it is"
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
        "cheetah triage runs in Python, and {shown} lacks {what}; in a checkout of Cheetah, run \
         {shown} -m pip install './python[triage]', or say in {PYTHON} which Python has it"
    )))
}
