//! The examiner's ledger: the head of every custody log that this user has written, kept away from the evidence.
//!
//! It is a directory of the user's own, `$XDG_STATE_HOME/cheetah/ledger` or `~/.local/state/cheetah/ledger`, with one file
//! for each log and each path that the log was written at. A person with write access to a
//! folder of evidence can cut, replace or remove its log, but does not reach the ledger.
//!
//! A log that was copied is written at two paths and grows at each. At the same path, a log must have the last head
//! that was written there. At another path it must have what was known of the evidence: the last record that is not
//! about a verification.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_device::path_text::path_to_text;
use cheetah_image::hash::{hex, is_hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::head::Head;
use crate::key::PublicKey;
use crate::os;
use crate::report::LogReport;

/// The maximum length of an entry, which takes about a KiB, and a path.
const ENTRY_BYTES_MAX: u64 = 64 << 10;
/// The maximum number of entries that are looked through.
const ENTRIES_MAX: usize = 1 << 20;
/// The ledger as messages name it.
const SHOWN: &str = "your ledger";

/// The usual directory of the ledger; `None` if the user has no home.
pub fn usual_directory() -> Option<PathBuf> {
    os::state().filter(|path| path.is_absolute()).map(|state| state.join("cheetah").join("ledger"))
}

/// A ledger.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    /// Whether a warning says already that it cannot be written.
    has_warned: AtomicBool,
}

/// The heads of one log at one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// The path of the log.
    path: String,
    /// When this user first wrote the log at this path, RFC 3339, UTC.
    since: String,
    /// The last head.
    head: Head,
    /// The last head whose record is not about a verification.
    evidence: Head,
}

impl Ledger {
    /// The ledger in a directory, which is made when there is something to write.
    pub fn in_directory(directory: PathBuf) -> Self {
        Self { directory, has_warned: AtomicBool::new(false) }
    }

    /// Notes the head of the log at `path`; `is_evidence` if its last record is about more than a verification. A ledger that
    /// cannot be written is a warning, once: the log itself is complete.
    pub(crate) fn note(&self, path: &Path, head: Head, is_evidence: bool) {
        if let Err(error) = write(&self.directory, path, head, is_evidence)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "the head of the custody log is not in your ledger {}, so nothing there will show whether the log's end \
                 was cut off: {error}",
                self.directory.display()
            );
        }
    }

    /// Compares a log with what the ledger knows of it, and of its path.
    pub(crate) fn compare(&self, log: &mut LogReport, path: &Path, keys: &[PublicKey]) {
        let here = place(path);
        let id = log.id.clone();
        let found = self.find(id.as_deref(), path);
        let is_trusted = |head: &Head| head.signer().is_some_and(|signer| keys.contains(&signer));
        let of_this: Vec<_> = found.iter().filter(|one| Some(&one.log) == id.as_ref()).collect();
        if let Some(newest) = found.iter().rfind(|one| one.place == here)
            && Some(&newest.log) != id.as_ref()
            && is_trusted(&newest.entry.head)
        {
            log.replaced = Some(format!(
                "{SHOWN} knows another, newer custody log at this path, begun {} and with {} records: this one was put in \
                 its place, or that one was moved",
                newest.entry.since, newest.entry.head.records
            ));
        }
        let at_path = of_this.iter().find(|one| one.place == here).map(|one| &one.entry.head);
        let elsewhere = of_this.iter().map(|one| &one.entry.evidence).max_by_key(|head| head.records);
        if let Some(head) = at_path.or(elsewhere).filter(|head| is_trusted(head)) {
            log.compare_with_head(&head.noted(), SHOWN, Some(&head.time));
        }
    }

    /// What the ledger knows of a log that is not at its path, as a sentence; `None` if it knows none there.
    pub(crate) fn missing(&self, path: &Path) -> Option<String> {
        let here = place(path);
        let newest = self.find(None, path).into_iter().rfind(|one| one.place == here)?;
        newest.entry.head.signer()?;
        let (name, head) = (path.display(), newest.entry.head);
        Some(format!(
            "{SHOWN} knows a custody log {name} with {} records, the last of {}, and it is missing: put it back",
            head.records, head.time
        ))
    }

    /// The entries of a log, and those at a path.
    fn find(&self, log: Option<&str>, path: &Path) -> Vec<Found> {
        let listed = match std::fs::read_dir(&self.directory) {
            Ok(listed) => listed,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!("your ledger {} cannot be read: {error}", self.directory.display());
                }
                return Vec::new();
            }
        };
        let here = place(path);
        let wanted = |name: &OsStr| {
            let (id, place) = name.to_str()?.strip_suffix(".json")?.split_once('-')?;
            (is_hex(id, 64) && (place == here || log == Some(id))).then(|| (id.to_owned(), place.to_owned()))
        };
        let names = listed.flatten().take(ENTRIES_MAX).filter_map(|one| Some((wanted(&one.file_name())?, one.path())));
        let mut found: Vec<_> =
            names.filter_map(|((log, place), path)| Some(Found { log, place, entry: read(&path)? })).collect();
        found.sort_by(|one, other| one.entry.since.cmp(&other.entry.since));
        found
    }
}

fn write(directory: &Path, path: &Path, head: Head, is_evidence: bool) -> std::io::Result<()> {
    os::make_own_folder(directory)?;
    let to = directory.join(file_name(&head.log, path));
    let known = read(&to);
    let evidence = match &known {
        Some(known) if !is_evidence => known.evidence.clone(),
        _ => head.clone(),
    };
    let since = known.map_or_else(|| head.time.clone(), |known| known.since);
    let entry = Entry { path: path_to_text(&absolute(path)).into_owned(), since, head, evidence };
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(directory)?;
    file.write_all(&serde_json::to_vec_pretty(&entry)?)?;
    file.as_file().sync_data()?;
    file.persist(&to).map(drop).map_err(|error| error.error)
}

/// Returns the name of the entry: the log's id, and a digest of the path.
fn file_name(log: &str, path: &Path) -> String {
    format!("{log}-{}.json", place(path))
}

/// Returns the digits that stand for a path.
fn place(path: &Path) -> String {
    hex(&Sha256::digest(absolute(path).as_os_str().as_encoded_bytes()))[..32].to_owned()
}

/// Returns the path from the root, with links in its folder resolved.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.into());
    folder.join(path.file_name().unwrap_or_default())
}

/// Reads an entry; `None` if there is none, or it is damaged.
fn read(path: &Path) -> Option<Entry> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(ENTRY_BYTES_MAX).read_to_end(&mut text).ok()?;
    let entry: Entry = serde_json::from_slice(&text).ok()?;
    (entry.head.log == entry.evidence.log).then_some(entry)
}

/// An entry, by the parts of its name.
struct Found {
    log: String,
    place: String,
    entry: Entry,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SigningKey;

    #[test]
    fn an_entry_keeps_the_last_record_of_evidence_and_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::load_or_make(&dir.path().join("k")).unwrap();
        let (ledger, log) = (dir.path().join("state/ledger"), dir.path().join("x.raw.custody"));
        let head = |records, time: &str| Head::sign([1; 32], records, [2; 32], time.into(), &key);
        write(&ledger, &log, head(4, "a"), true).unwrap();
        write(&ledger, &log, head(5, "b"), false).unwrap();
        let entry = read(&ledger.join(file_name(&hex(&[1; 32]), &log))).unwrap();
        assert_eq!((entry.since.as_str(), entry.head.records, entry.evidence.records), ("a", 5, 4));
        assert_eq!(std::fs::read_dir(&ledger).unwrap().count(), 1);
    }
}
