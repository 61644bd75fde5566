//! `cheetah triage`: what is on a source. The work is done by the Python package, which this becomes.

use super::python::{Verb, Words};
use crate::failure::Result;
use crate::ui::Ui;

const VERB: Verb = Verb {
    name: "triage",
    module: "cheetah.triage",
    packages: &["pytsk3", "pyarrow", "numpy", "yara_x", "jinja2", "rich"],
};

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
  --keywords FILE      Words to look for in contents and names, one a line
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
    #[command(flatten)]
    words: Words,
}

/// Runs it, in this process.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    VERB.run(args.words, ui)
}
