//! An image: its bytes beside its custody log, its coverage map and the hashes it stores.

use std::path::Path;

use cheetah_acquire::custody::{Audit, AuditOptions, audit};
use cheetah_device::Size;
use cheetah_image::{HashKind, OpenOptions, open};
use serde::Serialize;

use super::{Args, Keys, custody};
use crate::commands::compared::{hash_lines, range_lines};
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// What was found, for programs.
#[derive(Serialize)]
struct Answer<'a> {
    image: &'a str,
    ok: bool,
    #[serde(flatten)]
    audit: &'a Audit,
}

/// Verifies the image `args` name.
pub async fn run(args: &Args, keys: &Keys, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let name = &args.target;
    let path = file_of(name);
    if let Some(failure) = path.and_then(unfinished) {
        return Err(failure);
    }
    // The audit reads the map itself: hashes are of the image with zeros for what it lacks.
    let how = OpenOptions { timeout: args.timeout.get(), heed_map: false, ..OpenOptions::default() };
    let source = open(name, &how).await?;
    let progress = ui.progress(format!("verifying {name}"), source.identity.size);
    let options = AuditOptions { hashes: args.hash, trusted: keys.trusted.clone() };
    let found = tokio::select! {
        found = audit(&source, path, &options, |done| progress.set(done)) => found?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal}; nothing is known"))),
    };
    drop(progress);
    ui.answer(describe(name, &found), &Answer { image: name, ok: found.is_ok(), audit: &found });
    if let (false, Some(path), Some(log)) = (args.no_log, &found.log_path, &found.log) {
        custody::note(path, log, keys, found.verdict(), ui);
    }
    match found.problems.first() {
        None => Ok(()),
        Some(first) => Err(Failure::evidence(format!("{name}: {first}"))),
    }
}

/// The file that is meant, unless it is no file; its log and its map are beside it.
fn file_of(name: &str) -> Option<&Path> {
    let path = Path::new(name.strip_prefix("raw:").unwrap_or(name));
    (!name.contains("://")).then_some(path)
}

/// An image that is not there yet, because its acquisition has not come to its end.
fn unfinished(path: &Path) -> Option<Failure> {
    let partial = std::ffi::OsString::from_iter([path.as_os_str(), ".partial".as_ref()]);
    (!path.exists() && Path::new(&partial).exists()).then(|| {
        let (name, partial) = (path.display(), partial.display());
        Failure::evidence(format!(
            "{name}: its acquisition is not finished ({partial} is there): give the same acquire command again to go on"
        ))
    })
}

fn describe(name: &str, audit: &Audit) -> String {
    let size = Size(audit.size);
    let verdict = match (audit.is_ok(), audit.compared.is_empty()) {
        (true, false) => format!("{name}: {size}, all as when it was made"),
        (true, true) => format!("{name}: {size} can be read; no hash was recorded to compare with"),
        (false, _) => format!("{name}: {size}, not as it should be"),
    };
    let mut lines = vec![verdict];
    lines.extend(hash_lines(&audit.hashes, |kind| remark(audit, kind)));
    let when = "when the image was made";
    lines.extend(range_lines("unreadable", audit.unreadable.iter().map(|span| ((*span).into(), when))));
    lines.extend(range_lines("never read", audit.unread.iter().map(|span| ((*span).into(), when))));
    lines.extend(range_lines("damaged", audit.damaged.iter().map(|damage| (damage.range.into(), &damage.why))));
    lines.extend(audit.problems.iter().map(|problem| format!("  {problem}")));
    if let (Some(path), Some(log)) = (&audit.log_path, &audit.log) {
        lines.push(custody::describe(&path.display().to_string(), log));
    }
    lines.join("\n")
}

/// What a hash was compared with.
fn remark(audit: &Audit, kind: HashKind) -> String {
    let of_kind = audit.compared.iter().filter(|one| one.hash == kind.name());
    let places =
        |same| of_kind.clone().filter(move |one| one.same == same).map(|one| one.recorded_in).collect::<Vec<_>>();
    let (same, differing) = (places(true), places(false));
    let mut remarks = Vec::new();
    if !same.is_empty() {
        remarks.push(format!("as in the {}", cheetah_image::error::list(&same)));
    }
    if !differing.is_empty() {
        remarks.push(format!("DIFFERS from the {}", cheetah_image::error::list(&differing)));
    }
    remarks.join(", ")
}
