//! Heads of custody logs for a place that an attacker of the folder does not reach: the room's machine.
//!
//! The rule is that of the [ledger](crate::ledger): at the same path of the same machine, a log must have the last head
//! that was written there; elsewhere, the last whose record is not about a verification.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use cheetah_image::hash::hex;
use cheetah_kit::machine::host_name;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::LINE_BYTES_MAX;
use crate::head::Head;
use crate::key::PublicKey;
use crate::ledger::absolute;
use crate::log_file::LOG;
use crate::report::LogReport;

/// A head, and where its log was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedHead {
    /// A digest of the machine's name and the path.
    pub place: String,
    /// Whether the last record is about more than a verification.
    pub is_evidence: bool,
    /// The head.
    pub head: Head,
}

/// Heads that were written: of each log and path the last, and the last of evidence.
#[derive(Debug, Default)]
pub(crate) struct WrittenHeads(Mutex<BTreeMap<(String, String, bool), PlacedHead>>);

impl WrittenHeads {
    /// Notes that the head of the log at `path` was written.
    pub fn note(&self, path: &Path, head: &Head, is_evidence: bool) {
        let place = place(path);
        let key = (head.log.clone(), place.clone(), is_evidence);
        self.0.lock().insert(key, PlacedHead { place, is_evidence, head: head.clone() });
    }

    /// Takes the heads that were noted since they were taken last.
    pub fn take(&self) -> Vec<PlacedHead> {
        std::mem::take(&mut *self.0.lock()).into_values().collect()
    }
}

/// Returns the digits that stand for a path on this machine.
fn place(path: &Path) -> String {
    let name = [host_name().as_bytes(), b"\0", absolute(path).as_os_str().as_encoded_bytes()].concat();
    hex(&Sha256::digest(name))[..32].to_owned()
}

/// Which log is at `path`: SHA-256 of its first line, in hexadecimal; `None` if it has none.
pub fn log_id(path: &Path) -> Option<String> {
    let file = LOG.open_with(path, OpenOptions::new().read(true)).ok()??;
    let mut line = Vec::new();
    BufReader::new(file).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).ok()?;
    line.ends_with(b"\n").then(|| hex(&Sha256::digest(&line)))
}

/// Compares the log at `path` with heads that are known `from` somewhere. Those that none of the keys signed are left out.
pub(crate) fn compare(log: &mut LogReport, path: &Path, (from, heads): (&str, &[PlacedHead]), keys: &[PublicKey]) {
    let here = place(path);
    let is_signed = |head: &Head| head.signer().is_some_and(|signer| keys.contains(&signer));
    let of_this: Vec<_> =
        heads.iter().filter(|one| log.id.as_ref() == Some(&one.head.log) && is_signed(&one.head)).collect();
    let newest = |wanted: &dyn Fn(&PlacedHead) -> bool| {
        of_this.iter().filter(|one| wanted(one)).max_by_key(|one| one.head.records).map(|one| &one.head)
    };
    let head = newest(&|one| one.place == here).or_else(|| newest(&|one| one.is_evidence));
    if let Some(head) = head {
        log.compare_with_head(&head.noted(), from, Some(&head.time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SigningKey;

    #[test]
    fn a_log_must_have_the_last_head_at_its_place_and_elsewhere_the_last_of_evidence_that_a_trusted_key_signed() {
        let dir = tempfile::tempdir().unwrap();
        let [key, other] = ["k", "l"].map(|name| SigningKey::load_or_make(&dir.path().join(name)).unwrap());
        let (here, away) = (dir.path().join("x.raw.custody"), dir.path().join("y.raw.custody"));
        let placed = |path: &Path, records: u64, is_evidence, key| PlacedHead {
            place: place(path),
            is_evidence,
            head: Head::sign([1; 32], records, [records as u8; 32], "t".into(), key),
        };
        let found = |path: &Path, heads: &[PlacedHead]| {
            let chain = (1..=4).map(|record| [record; 32]).collect();
            let mut log = LogReport { id: Some(hex(&[1; 32])), records: 4, chain, ..LogReport::default() };
            compare(&mut log, path, ("the room", heads), &[key.public()]);
            log.heads.into_iter().map(|head| (head.records, head.problem.is_some())).collect::<Vec<_>>()
        };
        let heads = [placed(&here, 3, true, &key), placed(&here, 5, false, &key)];
        assert_eq!(found(&here, &heads), [(5, true)]);
        assert_eq!(found(&away, &heads), [(3, false)]);
        assert_eq!(found(&here, &[placed(&here, 5, true, &other)]), []);
        assert_eq!(found(&away, &[placed(&here, 5, false, &key)]), []);
        let of_another = Head::sign([9; 32], 5, [5; 32], "t".into(), &key);
        assert_eq!(found(&here, &[PlacedHead { head: of_another, ..placed(&here, 5, true, &key) }]), []);
    }
}
