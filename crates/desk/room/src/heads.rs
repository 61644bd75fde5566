//! The heads of custody logs that members sent to the room's machine.
//!
//! The head of a log is the number of its records and the hash of the last (`docs/guide/custody.md`). A person that can change
//! the folder of the evidence can cut its log off, but does not reach this list: `heads.jsonl` in the room's directory, one
//! line a head, each with the hash of the line before it and a signature of the room's key. Lines are only added. The
//! writer of a log signed the head itself; the room does not check that, those that ask for heads do.

use cheetah_error::{Error, Result};
use cheetah_kit::clock::now_s;
use cheetah_tls::Fingerprint;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::register::Seconds;
use crate::room::{LOCK, Room};

const HEADS: &str = "heads.jsonl";
/// The most bytes of the list: about 15 000 heads.
const LIST_LEN_MAX: usize = 16 << 20;
/// The most heads of one member in the list, so that none can fill it.
const HEADS_OF_MEMBER_MAX: usize = 5000;
/// The most heads that are sent together.
pub const HEADS_SENT_MAX: usize = 16;
/// The most characters of one part of a head.
const WORD_LEN_MAX: usize = 256;
/// A line's signature covers this, and the line without it.
const CONTEXT: &[u8] = b"cheetah room heads v1\0";

/// The head of a custody log, as its writer sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentHead {
    /// Where the log was written: a digest of the machine and the path, which names neither.
    pub place: String,
    /// Whether the last record is about more than a verification.
    pub is_evidence: bool,
    /// Which log: SHA-256 of its first line, in hexadecimal.
    pub log: String,
    /// The number of records.
    pub records: u64,
    /// SHA-256 of the last line, in hexadecimal.
    pub sha256: String,
    /// When it was the head, RFC 3339.
    pub time: String,
    /// The key of the log's writer.
    pub public_key: String,
    /// Its signature.
    pub signature: String,
}

/// Heads on the wire.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Heads {
    /// The heads.
    pub heads: Vec<SentHead>,
}

/// A line of the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    seq: u64,
    /// When it arrived, by the clock of the room's machine.
    time_s: Seconds,
    /// The member that sent it.
    member: String,
    /// The fingerprint of its key.
    key: String,
    head: SentHead,
    /// SHA-256 of the line before, in hexadecimal; of nothing for the first.
    prev: String,
    /// The room's signature, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    signature: String,
}

/// The list, as far as it was read.
#[derive(Debug, Default)]
struct List {
    text: String,
    lines: Vec<Line>,
    last: String,
}

impl SentHead {
    /// Whether it has the form of a head.
    pub fn is_sound(&self) -> bool {
        let words = [&self.place, &self.log, &self.sha256, &self.time, &self.public_key, &self.signature];
        let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        words.iter().all(|word| word.len() <= WORD_LEN_MAX && !word.contains(char::is_control))
            && is_digest(&self.log)
            && is_digest(&self.sha256)
    }
}

impl Line {
    /// What the room signs.
    fn message(&self) -> Result<Vec<u8>> {
        let unsigned = Self { signature: String::new(), ..self.clone() };
        Ok([CONTEXT, &json(&unsigned)?].concat())
    }
}

impl Room {
    /// Adds heads that a member sent to the list. Those that are there already are left out.
    ///
    /// # Errors
    ///
    /// If one does not have the form of a head, the list is full or damaged, or it cannot be written: it is then as before.
    pub fn keep_heads(&self, (member, key): (&str, &Fingerprint), heads: &[SentHead]) -> Result<()> {
        let key = key.to_string();
        if heads.len() > HEADS_SENT_MAX || !heads.iter().all(SentHead::is_sound) {
            return Err(Error::failed("the heads are malformed"));
        }
        let _lock = self.directory().lock(LOCK)?;
        let mut list = self.heads_list()?;
        let is_kept =
            |list: &List, head: &SentHead| list.lines.iter().any(|line| line.key == key && line.head == *head);
        for head in heads {
            if is_kept(&list, head) {
                continue;
            }
            if list.lines.iter().filter(|line| line.key == key).count() >= HEADS_OF_MEMBER_MAX {
                return Err(Error::failed(format!(
                    "the room has {HEADS_OF_MEMBER_MAX} heads of {member}, and keeps no more"
                )));
            }
            self.add(&mut list, (member, &key), head)?;
        }
        if list.text.len() > LIST_LEN_MAX {
            return Err(Error::failed("the room's list of heads is full"));
        }
        self.directory().write(HEADS, list.text.as_bytes())
    }

    fn add(&self, list: &mut List, (member, key): (&str, &str), head: &SentHead) -> Result<()> {
        let mut line = Line {
            seq: list.lines.len() as u64 + 1,
            time_s: now_s(),
            member: member.to_owned(),
            key: key.to_owned(),
            head: head.clone(),
            prev: list.last.clone(),
            signature: String::new(),
        };
        line.signature = self.authority().sign(&line.message()?)?;
        let text = String::from_utf8_lossy(&json(&line)?).into_owned();
        list.last = digest(text.as_bytes());
        list.text.push_str(&text);
        list.text.push('\n');
        list.lines.push(line);
        Ok(())
    }

    /// The heads of the log with this id: of each member and place the one with the most records.
    ///
    /// # Errors
    ///
    /// If the list is damaged, or cannot be read.
    pub fn heads(&self, log: &str) -> Result<Vec<SentHead>> {
        let mut newest: Vec<Line> = Vec::new();
        for line in self.heads_list()?.lines.into_iter().filter(|line| line.head.log == log) {
            let is_same = |known: &Line| {
                let (one, other) = (&known.head, &line.head);
                known.key == line.key && one.place == other.place && one.is_evidence == other.is_evidence
            };
            match newest.iter_mut().find(|known| is_same(known)) {
                Some(known) if known.head.records > line.head.records => {}
                Some(known) => *known = line,
                None => newest.push(line),
            }
        }
        Ok(newest.into_iter().map(|line| line.head).collect())
    }

    /// Reads the list, and checks that it is a chain that the room signed.
    fn heads_list(&self) -> Result<List> {
        let path = self.directory().at(HEADS);
        let damaged = |number: usize| {
            Error::evidence(format!(
                "{}: line {number} is not as this room wrote it; keep the file, and put a copy from a backup in its place",
                path.display()
            ))
        };
        let bytes = self.directory().read(HEADS, LIST_LEN_MAX)?.unwrap_or_default();
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged(1))?.to_owned();
        let mut list = List::default();
        for (index, one) in text.split_inclusive('\n').enumerate() {
            let line: Line = serde_json::from_str(one).map_err(|_| damaged(index + 1))?;
            if line.seq != index as u64 + 1 || line.prev != list.last || !one.ends_with('\n') {
                return Err(damaged(index + 1));
            }
            list.last = digest(one.trim_end().as_bytes());
            list.lines.push(line);
        }
        // Each refers to the one before, so the last signature covers all.
        if let Some(last) = list.lines.last()
            && !self.authority().has_signed(&last.message()?, &last.signature)
        {
            return Err(damaged(list.lines.len()));
        }
        list.text = text;
        Ok(list)
    }
}

fn digest(line: &[u8]) -> String {
    Fingerprint(Sha256::digest(line).into()).to_string()
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::failed(format!("putting a head as JSON: {error}")))
}
