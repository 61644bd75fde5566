//! The head of a custody log: the number of its records and the hash of the last.
//!
//! A chain shows that nothing was altered before its last record, not that there was no later one. Who knows a head, knows
//! that. Heads are therefore kept where the folder of the evidence is out of reach: in the examiner's [ledger](crate::ledger),
//! on paper, with the room.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_image::hash::{hex, is_hex};
use serde::{Deserialize, Serialize};

use crate::key::{PublicKey, SigningKey};
use crate::record::PrevDigest;
use crate::report::{KnownHead, LogReport};

/// A head, as an examiner writes it down: `12:3f5a…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedHead {
    /// The number of records.
    pub records: u64,
    /// SHA-256 of the line of the last of them, newline included, in hexadecimal.
    pub sha256: String,
}

impl fmt::Display for NotedHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.records, self.sha256)
    }
}

/// How the notes of an E01 begin that has a head in its header.
const NOTE: &str = "custody log ";
/// What follows the head in them.
const NOTE_ENDS: &str = "; ";

impl NotedHead {
    /// The notes for the header of an E01: this head, then the examiner's notes.
    pub fn before_notes(&self, notes: Option<&str>) -> String {
        format!("{NOTE}{self}{NOTE_ENDS}{}", notes.unwrap_or_default()).trim_end().to_owned()
    }

    /// The head in the notes from the header of an E01, if one is there.
    pub fn in_notes(notes: &str) -> Option<Self> {
        notes.strip_prefix(NOTE)?.split(NOTE_ENDS.trim_end()).next()?.parse().ok()
    }
}

/// The error for a text that is no [`NotedHead`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no head of a log, which is RECORDS:SHA256, as 12:3f5a…, with 64 digits")]
pub struct NotAHead(String);

impl FromStr for NotedHead {
    type Err = NotAHead;

    fn from_str(text: &str) -> Result<Self, NotAHead> {
        let parsed = text.split_once(':').and_then(|(records, sha256)| {
            let sha256 = sha256.to_ascii_lowercase();
            Some(Self { records: records.parse().ok().filter(|records| *records > 0)?, sha256 })
        });
        parsed.filter(|head| is_hex(&head.sha256, 64)).ok_or_else(|| NotAHead(text.to_owned()))
    }
}

/// A head, signed by the writer of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// Which log: SHA-256 of the line of its first record, in hexadecimal.
    pub log: String,
    /// The number of records.
    pub records: u64,
    /// SHA-256 of the line of the last of them, newline included, in hexadecimal.
    pub sha256: String,
    /// When it was the head, RFC 3339, UTC.
    pub time: String,
    /// The key that signed this, base64 of DER.
    pub public_key: String,
    /// Its Ed25519 signature over `cheetah custody head v1`, `log`, `records`, `sha256` and `time`, each with a newline;
    /// in base64.
    pub signature: String,
}

impl Head {
    /// Signs a head.
    pub(crate) fn sign(log: PrevDigest, records: u64, last: PrevDigest, time: String, key: &SigningKey) -> Self {
        let mut head = Self {
            log: hex(&log),
            records,
            sha256: hex(&last),
            time,
            public_key: key.public().to_string(),
            signature: String::new(),
        };
        head.signature = STANDARD.encode(key.sign(head.message().as_bytes()));
        head
    }

    fn message(&self) -> String {
        let Self { log, records, sha256, time, .. } = self;
        format!("cheetah custody head v1\n{log}\n{records}\n{sha256}\n{time}\n")
    }

    /// The key that signed it; `None` if the signature is not valid.
    pub fn signer(&self) -> Option<PublicKey> {
        let key: PublicKey = self.public_key.parse().ok()?;
        let signature = STANDARD.decode(&self.signature).ok()?.try_into().ok()?;
        key.has_signed(self.message().as_bytes(), &signature).then_some(key)
    }

    /// What an examiner would write down of it.
    pub fn noted(&self) -> NotedHead {
        NotedHead { records: self.records, sha256: self.sha256.clone() }
    }
}

impl LogReport {
    /// The head of the log, as far as it is in order; `None` if it has no record.
    pub fn head(&self) -> Option<NotedHead> {
        let sha256 = self.last.as_ref()?.sha256.clone();
        Some(NotedHead { records: self.records, sha256 })
    }

    /// Whether the log has this head.
    pub(crate) fn has(&self, head: &NotedHead) -> bool {
        let index = usize::try_from(head.records).unwrap_or(usize::MAX).saturating_sub(1);
        self.chain.get(index).is_some_and(|digest| hex(digest) == head.sha256)
    }

    /// Compares the log with a head that is known `from` somewhere, and notes the result.
    pub fn compare_with_head(&mut self, head: &NotedHead, from: &str, time: Option<&str>) {
        let then = time.map(|time| format!(", of {time},")).unwrap_or_default();
        let (known, has) = (head.records, self.records);
        let index = usize::try_from(known).unwrap_or(usize::MAX).saturating_sub(1);
        let problem = match self.chain.get(index) {
            _ if self.has(head) => None,
            Some(_) => Some(format!(
                "{from}{then} knows another record {known} of this log: the log is not the one that was written"
            )),
            None => {
                Some(format!("{from}{then} knows {known} records of this log, and it has {has}: its end was cut off"))
            }
        };
        self.heads.push(KnownHead { from: from.to_owned(), records: known, time: time.map(str::to_owned), problem });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_head_is_valid_until_any_member_changes() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::load_or_make(&dir.path().join("k")).unwrap();
        let head = Head::sign([1; 32], 12, [2; 32], "2026-11-20T12:00:00.123Z".into(), &key);
        assert_eq!(head.signer(), Some(key.public()));
        for changed in [
            Head { log: hex(&[2; 32]), ..head.clone() },
            Head { records: 11, ..head.clone() },
            Head { sha256: hex(&[1; 32]), ..head.clone() },
            Head { time: "2026-11-20T12:00:00.124Z".into(), ..head.clone() },
        ] {
            assert_eq!(changed.signer(), None);
        }
    }

    #[test]
    fn a_head_is_found_in_the_notes_that_it_was_put_before() {
        let head = NotedHead { records: 12, sha256: "ab".repeat(32) };
        for notes in [None, Some("found; under the bed")] {
            assert_eq!(NotedHead::in_notes(&head.before_notes(notes)), Some(head.clone()));
        }
        for notes in ["", "custody log", "custody log 12:ab; x", "found under the bed"] {
            assert_eq!(NotedHead::in_notes(notes), None, "{notes}");
        }
    }

    #[test]
    fn a_noted_head_reads_as_it_prints() {
        let head = NotedHead { records: 12, sha256: "ab".repeat(32) };
        assert_eq!(head.to_string().parse(), Ok(head.clone()));
        assert_eq!(head.to_string().to_uppercase().parse(), Ok(head));
        for bad in ["", "12", ":", "0:", "12:ab", &format!("0:{}", "ab".repeat(32))] {
            assert!(bad.parse::<NotedHead>().is_err(), "{bad}");
        }
    }
}
