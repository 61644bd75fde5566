//! Checks a custody log, alone or beside its image.

use std::path::Path;

use cheetah_custody::{CustodyEvent, CustodyLog, LogReport, State, Verified, Wipes, verify_log};
use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_device::visible::OneLine;
use cheetah_error::Error;
use cheetah_words::sentence;
use serde_json::Value;

use super::Keys;
use crate::answers::verify::VerifyLog;
use crate::commands::compared::wrapped;
use crate::desk::Desk;
use crate::failure::Result;
use crate::ui::Ui;

/// Checks the log at `path` and prints its problems.
pub fn run(path: &Path, keys: &Keys, ui: Ui) -> Result<()> {
    // The user names it, so a link is followed; one beside an image is not.
    let log = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let report = verify_log(&log, &keys.known)?;
    let name = path.display().to_string();
    let problems: Vec<_> = report.problems().iter().map(ToString::to_string).collect();
    let mut lines = vec![describe(&name, &report)];
    lines.extend(problems.iter().map(|problem| wrapped(problem, 2)));
    let (log, ok) = (path_to_text(path), problems.is_empty());
    let value = VerifyLog { custody: &report, log, ok, problems: &problems };
    ui.answer(lines.join("\n"), &value);
    match problems.first() {
        None => Ok(()),
        Some(first) => Err(Error::evidence(format!("{name}: {first}")).advise(report.steps()).into()),
    }
}

/// Describes the log for people.
pub fn describe(name: &str, report: &LogReport) -> String {
    let state = match (report.state, &report.finished) {
        (State::Finished, Some(finished)) => format!("finished {}", OneLine(&finished.time)),
        (State::Finished, None) => "finished".to_owned(),
        (State::Stopped, _) => "stopped, to be resumed".to_owned(),
        (State::Unfinished, _) => "unfinished".to_owned(),
        (State::Use, _) => "of use, without an acquisition".to_owned(),
        (State::Empty, _) => "empty".to_owned(),
    };
    let torn = match report.torn_lines {
        0 => String::new(),
        torn => format!(", {torn} unfinished lines"),
    };
    let in_order = if report.problem.is_none() { "in order" } else { "in order before the first problem" };
    let mut lines = vec![wrapped(&format!("{name}: {} records {in_order}{torn}, {state}", report.records), 0)];
    lines.extend(report.unfinished_line.map(|line| wrapped(&format!("note: {line}"), 2)));
    if let Some(began) = &report.began {
        let [time, user, host, tool] = [&began.time, &began.user, &began.host, &began.tool].map(OneLine);
        lines.push(wrapped(&format!("begun {time} by {user} on {host} with {tool}"), 2));
        if let Some(credential) = &began.credential {
            let [name, role, key] = [&credential.name, &credential.role, &credential.key_sha256].map(OneLine);
            lines.push(wrapped(&format!("credential: {name} ({role}), key {key}"), 2));
        }
    }
    let source = report.source.as_ref().map(words).filter(|words| !words.is_empty());
    lines.extend(source.map(|source| wrapped(&format!("source: {source}"), 2)));
    let case = report.case.as_ref().map(words).filter(|words| !words.is_empty());
    lines.extend(case.map(|case| wrapped(&format!("case: {case}"), 2)));
    lines.extend(report.signers.iter().map(|signer| format!("  {} records signed by {}", signer.records, signer.key)));
    lines.extend(wipes(&report.wipes).map(|wipes| wrapped(&wipes, 2)));
    lines.extend(heads(report).map(|heads| wrapped(&heads, 2)));
    lines.extend(report.not_asked.iter().map(|why| wrapped(&format!("note: {why}"), 2)));
    if let Some(finished) = &report.finished {
        let place = &finished.place;
        let printable = |note: &String| note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        lines.extend(finished.finished.notes.iter().map(|note| wrapped(&format!("NOTE: {}", printable(note)), 2)));
        lines.push(format!("  line {} finishes it; its SHA-256:", place.line));
        lines.push(format!("  {}", place.sha256));
    }
    if let Some(head) = report.head().filter(|_| report.problems().is_empty()) {
        lines.push("  for your notes, its head:".to_owned());
        lines.push(format!("  {head}"));
    }
    lines.join("\n")
}

/// Says which heads of the log were known elsewhere. Those that it lacks are problems.
fn heads(report: &LogReport) -> Option<String> {
    let known = report.heads.iter().filter(|head| head.problem.is_none());
    let known: Vec<_> = known.map(|head| format!("{} ({} records)", head.from, head.records)).collect();
    match known.is_empty() {
        false => Some(format!("its end is as known from {}", known.join(", "))),
        true if report.heads.is_empty() => Some(
            "note: no head of it is known here, so records may have been cut off its end (see `cheetah custody`)"
                .to_owned(),
        ),
        true => None,
    }
}

/// Describes the receipts of wipes, if there are any.
fn wipes(wipes: &Wipes) -> Option<String> {
    if wipes.is_empty() {
        return None;
    }
    let signed = wipes.signed_in_rooms.iter().map(|(room, count)| format!("{count} signed by nodes of room {room}"));
    let unsigned = (wipes.unsigned > 0).then(|| format!("{} not signed", wipes.unsigned));
    let receipts: Vec<_> = signed.chain(unsigned).collect();
    Some(format!("wiped {} at the nodes, by their receipts: {}", Size(wipes.wiped_bytes), receipts.join(", ")))
}

/// Lists the scalar members of an object.
fn words(value: &Value) -> String {
    // Anyone may have written the log, so no value may look like a line of this output, or control a terminal.
    let word = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            _ => return None,
        };
        Some(format!("{} {}", OneLine(name.replace('_', " ")), OneLine(text)))
    };
    value.as_object().map(|members| members.iter().filter_map(word).collect::<Vec<_>>().join(", ")).unwrap_or_default()
}

/// Adds doubts about the image to the log at `path`, as [`note`] adds the result.
pub fn note_doubts(path: &Path, log: &LogReport, keys: &Keys, doubts: Vec<String>, ui: Ui) {
    if !doubts.is_empty() {
        append(path, log, keys, &CustodyEvent::Doubts { doubts }, ui);
    }
}

/// Adds the result to the log at `path`, if the log is in order and signed with the verifier's own key.
pub fn note(path: &Path, log: &LogReport, keys: &Keys, verified: Verified, ui: Ui) {
    append(path, log, keys, &CustodyEvent::Verified(Box::new(verified)), ui);
}

/// Adds an event to the log beside the drive file at `path`, as [`note`] adds a result; nothing if there is no log.
pub fn note_beside(path: &Path, event: &CustodyEvent, desk: &Desk, ui: Ui) -> Result<()> {
    let path = CustodyLog::path_for(path);
    if path.symlink_metadata().is_ok() {
        let keys = Keys::of(&[], &[], desk)?;
        append(&path, &verify_log(&path, &keys.known)?, &keys, event, ui);
    }
    Ok(())
}

fn append(path: &Path, log: &LogReport, keys: &Keys, event: &CustodyEvent, ui: Ui) {
    // Nor is anything added to a log whose end was cut off, or that is another than was known.
    let is_known = log.heads.iter().all(|head| head.problem.is_none()) && log.replaced.is_none();
    let Some(key) = keys.own_in(log).filter(|_| log.problem.is_none() && is_known) else { return };
    let noted = CustodyLog::open_existing(path, key, &keys.custodian).and_then(|mut log| log.append(event).map(drop));
    if let Err(error) = noted {
        ui.warn(format_args!("the result is not recorded in the custody log: {}", sentence(&error)));
    }
}
