//! `cheetah custody`: prints the head of a custody log, for a notebook.

use std::path::{Path, PathBuf};

use cheetah_custody::{CustodyLog, LogReport, verify_log};
use cheetah_device::path_text::path_to_text;
use cheetah_device::visible::OneLine;
use cheetah_error::Error;

use super::compared::wrapped;
use super::verify::Keys;
use crate::answers::verify::Custody;
use crate::desk::Desk;
use crate::failure::Result;
use crate::ui::Ui;

/// The options of `custody`.
#[derive(Debug, clap::Args)]
#[command(about = "Print the head of a custody log, to note it elsewhere")]
#[command(
    long_about = "Checks a custody log and prints its head: the number of its records and the SHA-256 of the last.

A log is a chain, so the head proves every record before it. It cannot prove that nothing came after it: a person \
with write access to the folder can cut the end off the log. Note the head where that person cannot change it, in a \
notebook or in a report that you hand over. `verify --head` then shows whether the log still has it.

Each head that you write is also in your ledger on this machine, which `verify` uses: ~/.local/state/cheetah/ledger.

  cheetah custody case42.E01
  cheetah verify case42.E01 --head 12:3f5a…"
)]
pub struct Args {
    /// An image, a drive file, or a custody log
    target: PathBuf,

    /// Trust a log signed with this key, besides your own: base64, or a PEM file
    #[arg(long, value_name = "PUBLIC")]
    key: Vec<String>,
}

/// Runs it.
pub fn run(args: &Args, desk: &Desk, ui: Ui) -> Result<()> {
    let path = log_of(&args.target);
    let keys = Keys::of(&args.key, &[], desk)?;
    let report = verify_log(&path, &keys.known)?;
    let name = path.display().to_string();
    let Some(head) = report.head() else {
        return Err(Error::evidence(format!("{name}: there is no record in it")).into());
    };
    let problems: Vec<_> = report.problems().iter().map(ToString::to_string).collect();
    let mut lines = vec![wrapped(&format!("{name}: {} records, the last of {}", head.records, last_time(&report)), 0)];
    lines.push(format!("  {head}"));
    lines.extend(problems.iter().map(|problem| wrapped(problem, 2)));
    let value = Custody {
        head: head.to_string(),
        heads: &report.heads,
        id: report.id.as_deref(),
        log: path_to_text(&path),
        ok: problems.is_empty(),
        problems: &problems,
        records: head.records,
        sha256: &head.sha256,
    };
    ui.answer(lines.join("\n"), &value);
    match problems.first() {
        None => Ok(()),
        Some(first) => Err(Error::evidence(format!("{name}: {first}")).advise(report.steps()).into()),
    }
}

fn last_time(report: &LogReport) -> OneLine<&str> {
    OneLine(report.last_time.as_deref().unwrap_or("an unknown time"))
}

/// The log that the user means: the file itself, or that beside the image.
fn log_of(target: &Path) -> PathBuf {
    match target.extension() {
        Some(extension) if extension == "custody" => target.canonicalize().unwrap_or_else(|_| target.to_owned()),
        _ => CustodyLog::path_for(target),
    }
}
