//! Verifies an image: compares it with its custody log, its coverage map and the hashes stored in it.

use std::path::{Path, PathBuf};

use cheetah_custody::{Audit, AuditOptions, LogReport, audit};
use cheetah_device::Size;
use cheetah_error::Error;
use cheetah_image::HashKind;
use cheetah_source::{LinkUse, SourceOptions, doubts, open};

use super::{Args, Keys, custody};
use crate::answers::verify::VerifyImage;
use crate::commands::compared::{hash_lines, range_lines, wrapped};
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// Verifies the image that `args` name, which is the file at `path` unless it is a URI.
pub async fn run(args: &Args, path: Option<PathBuf>, (keys, desk): (&Keys, &Desk), ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let name = &args.target;
    let path = path.as_deref();
    if let Some(failure) = path.and_then(unfinished) {
        return Err(failure);
    }
    // The audit reads the map itself, because in hashes missing ranges count as zeros.
    let how = SourceOptions {
        apply_map: false,
        in_order: true,
        ..SourceOptions::new(LinkUse::default(), desk.session(args.timeout.get()))
    };
    let source = stop.unless(&format!("opening {name}"), open(name, &how)).await?.source;
    let doubts = doubts(&source, args.timeout.get()).await;
    let progress = ui.progress(format!("verifying {name}"), source.identity.size);
    let options = AuditOptions { hashes: args.hash, known: keys.known.clone() };
    let found = tokio::select! {
        found = audit(&source, path, &options, |done| progress.set(done)) => found?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal} before the end; run it again"))),
    };
    drop(progress);
    let mut text = describe(name, &found);
    doubts.iter().for_each(|doubt| text.push_str(&format!("\n{}", wrapped(&format!("IN DOUBT: {doubt}"), 2))));
    ui.answer(text, &VerifyImage { image: name, ok: found.is_ok(), doubts: &doubts, audit: &found });
    if let (false, Some(path), Some(log)) = (args.no_log, &found.log_path, &found.log) {
        custody::note_doubts(path, log, keys, doubts, ui);
        match found.may_be_signed() {
            true => custody::note(path, log, keys, found.verdict(), ui),
            false => ui.warn("the result is not recorded in the custody log: nothing signed was compared"),
        }
    }
    match found.problems.first() {
        None => Ok(()),
        Some(first) => {
            Err(Error::evidence(format!("{name}: {first}")).advise(found.log.iter().flat_map(LogReport::steps)).into())
        }
    }
}

/// Returns the failure for an image whose acquisition is not finished.
fn unfinished(path: &Path) -> Option<Failure> {
    let partial = std::ffi::OsString::from_iter([path.as_os_str(), ".partial".as_ref()]);
    (!path.exists() && Path::new(&partial).exists()).then(|| {
        let (name, partial) = (path.display(), partial.display());
        Failure::evidence(format!(
            "{name}: its acquisition is not finished ({partial} exists): run the same acquire command again to resume"
        ))
    })
}

fn describe(name: &str, audit: &Audit) -> String {
    let size = Size(audit.size);
    let mut lines = vec![wrapped(&format!("{name}: {size}: {}", verdict(audit)), 0)];
    lines.extend(hash_lines(&audit.hashes, |kind| remark(audit, kind)));
    let when = "when the image was made";
    lines.extend(range_lines("unreadable", audit.unreadable.iter().map(|span| ((*span).into(), when))));
    lines.extend(range_lines("never read", audit.unread.iter().map(|span| ((*span).into(), when))));
    lines.extend(range_lines("damaged", audit.damaged.iter().map(|damage| (damage.range.into(), &damage.why))));
    lines.extend(audit.problems.iter().map(|problem| wrapped(problem, 2)));
    if let (Some(path), Some(log)) = (&audit.log_path, &audit.log) {
        lines.push(custody::describe(&path.display().to_string(), log));
    }
    lines.join("\n")
}

/// Whether the image changed, and which ranges it has lacked from the start.
fn verdict(audit: &Audit) -> String {
    let records = [("custody log", "its log"), ("image", "the hashes stored in it")];
    let compared = |place: &str| audit.compared.iter().any(|one| one.recorded_in == place);
    let records: Vec<_> = records.iter().filter(|(place, _)| compared(place)).map(|(_, shown)| *shown).collect();
    let image_changed = !audit.damaged.is_empty() || audit.compared.iter().any(|one| !one.same);
    let mut verdict = match () {
        () if image_changed => "changed or damaged since it was made".to_owned(),
        () if records.is_empty() => "readable; no hash was recorded to compare with".to_owned(),
        () => format!("matches {}", cheetah_error::list(&records)),
    };
    if !image_changed && !audit.unchanged {
        verdict.push_str(", but see below");
    }
    for (count, what) in
        [(audit.unreadable.len(), "unreadable when it was acquired"), (audit.unread.len(), "never read")]
    {
        match count {
            0 => {}
            1 => verdict.push_str(&format!("; 1 range was {what}")),
            count => verdict.push_str(&format!("; {count} ranges were {what}")),
        }
    }
    verdict
}

/// Names the records that a hash was compared with.
fn remark(audit: &Audit, kind: HashKind) -> String {
    let of_kind = audit.compared.iter().filter(|one| one.hash == kind.name());
    let places =
        |same| of_kind.clone().filter(move |one| one.same == same).map(|one| one.recorded_in).collect::<Vec<_>>();
    let (same, differing) = (places(true), places(false));
    let mut remarks = Vec::new();
    if !same.is_empty() {
        remarks.push(format!("as in the {}", cheetah_error::list(&same)));
    }
    if !differing.is_empty() {
        remarks.push(format!("DIFFERS from the {}", cheetah_error::list(&differing)));
    }
    remarks.join(", ")
}
