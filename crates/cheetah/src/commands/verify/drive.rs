//! Verifies a drive: compares its chunks with the digests made when it was loaded.

use std::path::Path;

use cheetah_acquire::custody::{LogReport, Verified, verify_log};
use cheetah_device::Size;
use cheetah_drive::verify::{Compared, VerifyOptions, VerifyReport};
use cheetah_drive::{CopyProgress, DriveFile, Image, ImageState};
use serde::Serialize;

use super::{Args, Keys, custody, log_beside};
use crate::commands::compared::{hash_lines, range_lines, since_load, wrapped};
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The result, for programs.
#[derive(Serialize)]
struct Answer<'a> {
    /// Whether nothing differs and nothing is unreadable.
    ok: bool,
    #[serde(flatten)]
    report: &'a VerifyReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custody: Option<&'a LogReport>,
}

/// Verifies the drive whose file is at `path`.
pub async fn run(path: &Path, args: &Args, keys: &Keys, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let file = DriveFile::load(path)?;
    let name = path.display().to_string();
    let progress = ui.progress(format!("verifying {name}"), file.size);
    let options = VerifyOptions { hashes: args.hash, timeout: args.timeout.get() };
    let shown = |so_far: CopyProgress| progress.set(so_far.done);
    let report = tokio::select! {
        report = cheetah_drive::verify::verify(&file, options, shown) => report?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal} before the end; run it again"))),
    };
    drop(progress);
    let log_path = log_beside(&file.path);
    let log = log_path.as_deref().map(|path| verify_log(path, &keys.trusted)).transpose()?;
    let state = file.image.as_ref().map(|image| image.state);
    let problems = problems(&report, state, log.as_ref());
    let ok = problems.is_empty();
    let mut lines = vec![describe(&name, &report, state.and_then(since_load).unwrap_or_default())];
    let note = file.image.as_ref().and_then(Image::note);
    // The log has it, too, if it has the end of the fill.
    let is_in_log = log.as_ref().and_then(|log| log.finished.as_ref()).is_some_and(|at| !at.finished.notes.is_empty());
    lines.extend(note.iter().filter(|_| !is_in_log).map(|note| wrapped(&format!("NOTE: {note}"), 2)));
    let note = note.as_deref();
    if let (Some(path), Some(log)) = (&log_path, &log) {
        lines.push(custody::describe(&path.display().to_string(), log));
        lines.extend(log.problems().iter().map(|problem| wrapped(problem, 2)));
        ui.answer(lines.join("\n"), &Answer { ok, report: &report, note, custody: Some(log) });
        if !args.no_log {
            custody::note(path, log, keys, verdict(&report, &problems), ui);
        }
    } else {
        ui.answer(lines.join("\n"), &Answer { ok, report: &report, note, custody: None });
    }
    match problems.first() {
        None => Ok(()),
        Some(first) => Err(Failure::evidence(format!("{name} {first}"))),
    }
}

/// Lists the problems; each continues a sentence that begins with the drive's name.
fn problems(report: &VerifyReport, state: Option<ImageState>, log: Option<&LogReport>) -> Vec<String> {
    let since = state.and_then(since_load).map(|since| format!(": {since}")).unwrap_or_default();
    // Ranges that were unreadable at the source are missing, even if the rest is intact.
    let bad = !report.is_ok() || state == Some(ImageState::Incomplete);
    let altered = report.altered_units.keys().next();
    let altered = altered.map(|node| format!("is read in full, but node {node} returns altered content: replace it"));
    let bad = bad && !(report.is_ok_but_for_nodes() && state != Some(ImageState::Incomplete));
    let drive = bad.then(|| format!("is not what was loaded{since}; see above"));
    let finished = log.and_then(|log| log.finished.as_ref());
    let differing = finished.into_iter().flat_map(|at| {
        let differs = move |(kind, then): &(_, &str)| report.hashes.get(*kind).is_some_and(|now| now != *then);
        at.finished.hashes.iter().filter(differs)
    });
    let differing = differing.map(|(kind, _)| format!("has a {} that differs from its custody log", kind.name()));
    let log = log.into_iter().flat_map(LogReport::problems).map(|problem| format!("has a bad custody log: {problem}"));
    drive.into_iter().chain(altered).chain(differing).chain(log).collect()
}

/// Returns the record for the log.
fn verdict(report: &VerifyReport, problems: &[String]) -> Verified {
    Verified {
        ok: problems.is_empty(),
        size: report.size,
        unreadable_bytes: report.unreadable.iter().map(|found| found.len).sum(),
        hashes: report.hashes.clone(),
        digests: report.compared == Compared::Digests,
        problems: problems.to_vec(),
    }
}

/// Describes the result for people; `since` is the reason that the drive may differ from the loaded image.
fn describe(name: &str, report: &VerifyReport, since: &str) -> String {
    let size = Size(report.size);
    let behind = match report.size - report.image_size.min(report.size) {
        0 => String::new(),
        rest => format!(", including {} after the image, which need only be readable", Size(rest)),
    };
    let first = match report.compared {
        Compared::Digests if report.is_ok() => format!("{name}: all {size} are as loaded{behind}"),
        Compared::Digests => format!("{name}: {} of {size} are as loaded{behind}", Size(report.ok_bytes)),
        Compared::Modified if report.is_ok() => {
            format!("{name}: {since}, but unchanged: all {size} are as loaded{behind}")
        }
        Compared::Modified => format!("{name}: {since}: {} of {size} are as loaded{behind}", Size(report.ok_bytes)),
        Compared::Empty => {
            format!("{name}: {} of {size} can be read; no image was loaded to compare with", Size(report.ok_bytes))
        }
        Compared::Loading => {
            format!("{name}: {since}, so it holds part of an image only; load it again")
        }
    };
    let mut lines = vec![wrapped(&first, 0)];
    if report.uncompared_bytes > 0 {
        let uncompared = Size(report.uncompared_bytes);
        lines.push(wrapped(&format!("not compared: {uncompared} of chunks that are partly unreadable"), 2));
    }
    lines.extend(hash_lines(&report.hashes, |kind| {
        let differs = report.hashes_differing.iter().any(|name| name == kind.name());
        if differs { "DIFFERS from the one made at load".to_owned() } else { String::new() }
    }));
    lines.extend(range_lines("differs", report.mismatched.iter().map(|bad| (bad.range(), &bad.why))));
    lines.extend(range_lines("unreadable", report.unreadable.iter().map(|bad| (bad.range(), &bad.why))));
    lines.extend(range_lines("unverified", report.unverified.iter().map(|bad| (bad.range(), &bad.why))));
    for (node, units) in &report.altered_units {
        let text = format!("node {node} returned {units} units altered; they were read from the others");
        lines.push(wrapped(&text, 2));
    }
    lines.join("\n")
}
