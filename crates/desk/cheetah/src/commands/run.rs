//! `cheetah run`: runs any program on each machine of a cluster, each on its part of a source. The Python package does the work.

use super::python::{Verb, Words};
use crate::desk::Desk;
use crate::failure::Result;
use crate::ui::Ui;

/// The verb, as Python implements it.
pub const VERB: Verb = Verb { name: "run", module: "cheetah.run", packages: &[] };

/// The help page, which the Python package prints as well.
pub const HELP: &str = include_str!("../../../../../python/cheetah/run/help.txt");

/// The arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Run any program on each machine of a cluster, each on its part",
    long_about = HELP,
    override_help = HELP,
    override_usage = "cheetah run SOURCE --out DIR [OPTIONS] -- PROGRAM [ARGUMENT]..."
)]
pub struct Args {
    #[command(flatten)]
    pub words: Words,
}

/// Runs the verb in this process.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    VERB.run(args.words, desk, ui)
}
