//! `cheetah bench`: measures which storage makes forensic work fast. The Python package does the work.

use super::python::{Verb, Words};
use crate::desk::Desk;
use crate::failure::Result;
use crate::ui::Ui;

/// The verb, as Python implements it.
pub const VERB: Verb = Verb { name: "bench", module: "cheetah.bench", packages: &["jinja2", "rich"] };

/// The help page, which the Python package prints as well.
pub const HELP: &str = include_str!("../../../../../python/cheetah/bench/help.txt");

/// The arguments of `bench`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Measure which storage makes forensic work fast",
    long_about = HELP,
    override_help = HELP,
    override_usage = "cheetah bench storage TARGET… [OPTIONS]"
)]
pub struct Args {
    #[command(flatten)]
    words: Words,
}

/// Runs the verb in this process.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    VERB.run(args.words, desk, ui)
}
