//! Verifies a drive: compares its chunks with the digests made when it was loaded.

use std::path::Path;

use cheetah_custody::{DriveRecords, Finished, Verified};
use cheetah_device::Size;
use cheetah_drive::verify::{AtNodes, Compared, VerifyOptions, VerifyReport};
use cheetah_drive::{CopyProgress, DriveFile, Image, ImageState};
use cheetah_source::doubts_about_drive;

use super::{Args, Keys, custody};
use crate::answers::verify::VerifyDrive;
use crate::commands::compared::{hash_lines, range_lines, since_load, work_lines, wrapped};
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The end of a problem whose details are printed before it.
const SEE_ABOVE: &str = "; see above";

/// Verifies the drive whose file is at `path`.
pub async fn run(path: &Path, args: &Args, (keys, desk): (&Keys, &Desk), ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let file = DriveFile::load(path)?;
    let name = path.display().to_string();
    let progress = ui.progress(format!("verifying {name}"), file.size);
    let records = DriveRecords::read(&file, &keys.known)?;
    let options = VerifyOptions {
        hashes: args.hash,
        signed: records.hashes(),
        session: desk.session(args.timeout.get()),
        at_nodes: args.at_nodes,
        lend: args.lend.request("verify", &desk.custodian),
    };
    let shown = |so_far: CopyProgress| progress.set(so_far.done);
    let report = tokio::select! {
        report = cheetah_drive::verify::verify(&file, options, shown) => report?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal} before the end; run it again"))),
    };
    drop(progress);
    let doubts = doubts_about_drive(&file, &desk.session(args.timeout.get())).await;
    let state = file.image.as_ref().map(|image| image.state);
    let compared = signed_comparison(&report, records.signed());
    let problems = problems(&report, state, (&records, compared));
    let mut lines = vec![describe(&name, &report, state.and_then(since_load).unwrap_or_default())];
    lines.extend(problems.iter().filter(|problem| !problem.ends_with(SEE_ABOVE)).map(|problem| wrapped(problem, 2)));
    lines.extend(doubts.iter().map(|doubt| wrapped(&format!("IN DOUBT: {doubt}"), 2)));
    let note = file.image.as_ref().and_then(Image::note).map(|note| note.to_string());
    // The log has it, too, if it has the end of the fill.
    let is_in_log = records.signed().is_some_and(|signed| !signed.notes.is_empty());
    lines.extend(note.iter().filter(|_| !is_in_log).map(|note| wrapped(&format!("NOTE: {note}"), 2)));
    if let Some(log) = &records.log {
        lines.push(custody::describe(&records.log_path.display().to_string(), log));
    }
    let (ok, log) = (problems.is_empty(), records.log.as_ref());
    let answer =
        VerifyDrive { ok, problems: &problems, doubts: &doubts, report: &report, note: note.as_deref(), custody: log };
    ui.answer(lines.join("\n"), &answer);
    // What was compared with nothing signed is not signed.
    if let Some(log) = log.filter(|_| !args.no_log && (compared || !ok && records.signed().is_some())) {
        custody::note_doubts(&records.log_path, log, keys, doubts, ui);
        custody::note(&records.log_path, log, keys, verdict(&report, &problems), ui);
    }
    match problems.first() {
        None => Ok(()),
        Some(first) => Err(Failure::evidence(format!("{name} {first}"))),
    }
}

/// Whether the content was compared with a hash or digests that the custody log signed.
fn signed_comparison(report: &VerifyReport, signed: Option<&Finished>) -> bool {
    let Some(signed) = signed else { return false };
    // The drive file names the same digests; otherwise that is a problem.
    let by_digests = matches!(report.compared, Compared::Digests | Compared::Modified) && signed.digests.is_some();
    by_digests || signed.hashes.iter().any(|(kind, _)| report.hashes.get(kind).is_some())
}

/// Lists the problems; each continues a sentence that begins with the drive's name. `compared`: whether the content was
/// compared with something signed.
fn problems(
    report: &VerifyReport,
    state: Option<ImageState>,
    (records, compared): (&DriveRecords, bool),
) -> Vec<String> {
    let since = state.and_then(since_load).map(|since| format!(": {since}")).unwrap_or_default();
    // Ranges that were unreadable at the source are missing, even if the rest is intact.
    let bad = !report.is_ok() || state == Some(ImageState::Incomplete);
    let altered = report.altered_units.keys().next();
    let altered = altered.map(|node| format!("is read in full, but node {node} returns altered content: replace it"));
    let bad = bad && !(report.is_ok_but_for_nodes() && state != Some(ImageState::Incomplete));
    let drive = bad.then(|| format!("is not what was loaded{since}{SEE_ABOVE}"));
    let signed = records.signed();
    let differing = signed.into_iter().flat_map(|signed| {
        let differs = move |(kind, then): &(_, &str)| report.hashes.get(*kind).is_some_and(|now| now != *then);
        signed.hashes.iter().filter(differs)
    });
    let differing = differing.map(|(kind, _)| format!("has a {} that differs from its custody log", kind.name()));
    let uncompared = signed
        .filter(|_| !compared && !bad)
        .map(|_| "was compared with nothing that its custody log signed; verify it without --hash".to_owned());
    drive
        .into_iter()
        .chain(altered)
        .chain(differing)
        .chain(uncompared)
        .chain(records.problems.iter().cloned())
        .collect()
}

/// Returns the record for the log.
fn verdict(report: &VerifyReport, problems: &[String]) -> Verified {
    Verified {
        ok: problems.is_empty(),
        size: report.size,
        unreadable_bytes: report.unreadable.iter().map(|found| found.len).sum(),
        hashes: report.hashes.clone(),
        digests: report.compared == Compared::Digests,
        at_nodes_bytes: report.at_nodes.as_ref().map_or(0, |at_nodes| at_nodes.work.node_bytes.values().sum()),
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
    lines.extend(report.at_nodes.iter().flat_map(where_lines));
    for (node, units) in &report.altered_units {
        let text = format!("node {node} returned {units} units altered; they were read from the others");
        lines.push(wrapped(&text, 2));
    }
    lines.join("\n")
}

/// Says where the drive was verified.
fn where_lines(at_nodes: &AtNodes) -> Vec<String> {
    let AtNodes { work, hashes_skipped } = at_nodes;
    let mut lines = work_lines("hashed", work);
    if !hashes_skipped.is_empty() {
        let skipped = cheetah_error::list(&hashes_skipped.iter().map(String::as_str).collect::<Vec<_>>());
        lines.push(wrapped(&format!("not computed: {skipped}, which need all bytes in one place"), 2));
    }
    lines
}
