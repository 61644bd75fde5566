//! Compares the files of a triage with its custody log.

use std::path::Path;

use cheetah_custody::{Triaged, Verified, verify_log};
use cheetah_device::path_text::path_to_text;
use cheetah_error::Error;

use super::{Args, Keys, custody};
use crate::answers::verify::VerifyTriage;
use crate::commands::compared::wrapped;
use crate::failure::Result;
use crate::ui::Ui;

/// Whether `folder` holds a triage with a log.
pub fn is_one(folder: &Path) -> bool {
    folder.is_dir() && Triaged::log_path(folder).symlink_metadata().is_ok()
}

/// Checks the log in `folder`, and compares the files of the result with it.
pub fn run(folder: &Path, args: &Args, keys: &Keys, ui: Ui) -> Result<()> {
    let path = Triaged::log_path(folder);
    let report = verify_log(&path, &keys.known)?;
    let mut problems: Vec<_> = report.problems().iter().map(ToString::to_string).collect();
    match &report.triaged {
        Some(triaged) => problems.extend(triaged.differences(folder).iter().map(ToString::to_string)),
        None => problems.push("the log does not say what the result of the triage is".to_owned()),
    }
    let ok = problems.is_empty();
    let name = folder.display().to_string();
    let outputs = report.triaged.as_ref().map(|triaged| triaged.outputs.as_slice()).unwrap_or_default();
    let mut lines = vec![custody::describe(&path.display().to_string(), &report)];
    if ok {
        let size: u64 = outputs.iter().map(|output| output.size).sum();
        lines.push(format!("{name}: {} files, {size} bytes, as when the triage ended", outputs.len()));
    }
    lines.extend(problems.iter().map(|problem| wrapped(problem, 2)));
    let triage = path_to_text(folder);
    let value = VerifyTriage { custody: &report, ok, outputs, problems: &problems, triage };
    ui.answer(lines.join("\n"), &value);
    if report.problem.is_none() && report.triaged.is_some() && !args.no_log {
        let size = outputs.iter().map(|output| output.size).sum();
        let verified = Verified { ok, size, problems: problems.clone(), ..Verified::default() };
        custody::note(&path, &report, keys, verified, ui);
    }
    match problems.first() {
        None => Ok(()),
        Some(first) => Err(Error::evidence(format!("{name}: {first}")).advise(report.steps()).into()),
    }
}
