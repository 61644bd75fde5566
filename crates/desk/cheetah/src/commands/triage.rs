//! `cheetah triage`: reports a source's content. The Python package does the work.

use super::python::{Verb, Words};
use crate::desk::Desk;
use crate::failure::Result;
use crate::ui::Ui;

/// The verb, as Python implements it.
pub const VERB: Verb = Verb {
    name: "triage",
    module: "cheetah.triage",
    packages: &["pytsk3", "pyarrow", "numpy", "yara_x", "jinja2", "rich"],
};

/// The help page, which the Python package prints as well.
pub const HELP: &str = include_str!("../../../../../python/cheetah/triage/help.txt");

/// The arguments of `triage`.
#[derive(Debug, clap::Args)]
#[command(
    about = "List, hash and search files, and report what to look at first",
    long_about = HELP,
    override_help = HELP,
    override_usage = "cheetah triage SOURCE --out DIR [OPTIONS]"
)]
pub struct Args {
    #[command(flatten)]
    pub words: Words,
}

/// Runs the verb in this process.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    VERB.run(args.words, desk, ui)
}
