//! The journal on disk.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use std::sync::Arc;

use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Kind, Result};
use cheetah_image::append::Appender;
use cheetah_image::hash::hex;
use cheetah_image::own_file::{Locked, LockedFile, OwnFile};
use cheetah_image::publish::sync_directory_of;
use sha2::{Digest as _, Sha256};

use super::{AcquisitionState, BadRecord, JournalRecord, Start, VERSION};

/// The longest record in bytes: a checkpoint with a million unreadable ranges.
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// The number of digits of the check.
const CHECK_DIGITS: usize = 16;

/// The start of the JSON of the first record.
const START: &[u8] = br#" {"start":"#;

/// A file is a journal if it begins with a start record, or with the part of one that a crash left.
const JOURNAL: OwnFile = OwnFile {
    name: "journal",
    begins: |head| {
        let (check, json) = head.split_at(head.len().min(CHECK_DIGITS));
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        check.iter().all(is_digit) && json.iter().zip(START).all(|(byte, start)| byte == start)
    },
};

/// The state and the length of the valid part of a journal; or the number of the bad line, and why.
type JournalScan = std::result::Result<(Option<AcquisitionState>, u64), (u64, BadRecord)>;

/// Vouches for a journal after each record: gets the offset of its last checkpoint, and the SHA-256 of its bytes. The custody
/// logs do that.
pub type Witness = Arc<dyn Fn(u64, String) -> Result<()> + Send + Sync>;

/// A journal open for appending, by this process alone.
pub struct Journal {
    file: Appender,
    path: PathBuf,
    /// The digest of all of its bytes.
    sha256: Sha256,
    /// The offset of its last checkpoint.
    at: u64,
    witness: Option<Witness>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).field("at", &self.at).finish_non_exhaustive()
    }
}

/// A journal that is locked, and whose content is not believed yet.
#[derive(Debug)]
pub struct Unread(Journal);

impl Journal {
    /// Creates a journal at `path`, where there must be none. Nothing is left of one that cannot be written.
    pub fn create(path: &Path, start: &Start) -> Result<Self> {
        drop(JOURNAL.create(path)?);
        let Locked::Held { file, .. } = JOURNAL.open_locked(path)? else { return Err(in_use(path)) };
        let mut journal = Self::of(file, path);
        let made = journal.append(&JournalRecord::Start(Box::new(start.clone()))).and_then(|_| {
            sync_directory_of(path)
                .map_err(|error| Error::io(format_args!("making the journal {}", path.display()), &error))
        });
        match made {
            Ok(()) => Ok(journal),
            Err(error) => {
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    fn of(file: LockedFile, path: &Path) -> Self {
        // The end is set when it is read.
        let file = Appender::new(file, 0);
        Self { file, path: path.to_owned(), sha256: Sha256::new(), at: 0, witness: None }
    }

    /// Opens the journal at `path` without reading it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If another process has it open, or the file is not a journal.
    pub fn lock(path: &Path) -> Result<Option<Unread>> {
        match JOURNAL.open_locked(path)? {
            Locked::Held { file, .. } => Ok(Some(Unread(Self::of(file, path)))),
            Locked::InUse => Err(in_use(path)),
            Locked::Absent => Ok(None),
        }
    }

    /// Returns how the acquisition began whose journal is at `path`. Nothing vouches for that: it may explain an error, and decides
    /// nothing. `None` if there is no journal, or none that can be read.
    pub fn beginning(path: &Path) -> Option<Start> {
        let file = cheetah_image::regular::open_file(path).ok()?;
        let mut line = Vec::new();
        BufReader::new(file).take(RECORD_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
        match parse(&line)? {
            JournalRecord::Start(start) => Some(*start),
            _ => None,
        }
    }

    /// Lets `witness` vouch for what is in the journal now, and for each record that follows.
    pub fn witnessed_by(&mut self, witness: Witness) -> Result<()> {
        witness(self.at, hex(&self.sha256.clone().finalize()))?;
        self.witness = Some(witness);
        Ok(())
    }
}

impl Unread {
    /// Reads the journal; `None` if a crash cut off its first record, or before anything was done: it is removed then. With
    /// `signed`, only the beginning that has this SHA-256 is believed; what follows was written in the moment of a crash, and
    /// is cut off.
    ///
    /// # Errors
    ///
    /// `Kind::Evidence` if the journal has no such beginning, `Kind::Failed` if it is damaged.
    pub fn read(self, signed: Signed<'_>) -> Result<Option<(Journal, AcquisitionState)>> {
        let mut journal = self.0;
        let path = journal.path.clone();
        let doing = |error: std::io::Error| Error::io(format_args!("reading the journal {}", path.display()), &error);
        let end = match signed {
            Signed::NotKept => u64::MAX,
            Signed::As(sha256) => journal.end_of(sha256).map_err(doing)?.ok_or_else(|| altered(&path))?,
            // The first thing that is signed is the journal's first record, before any destination is touched.
            Signed::Nothing if journal.has_one_record().map_err(doing)? => return journal.remove().map(|()| None),
            Signed::Nothing => return Err(unsigned(&path)),
        };
        let (state, end) = journal.read(end).map_err(doing)?.map_err(|(line, why)| {
            let path = path.display();
            Error::failed(format!("the journal {path} is damaged: line {line} is {why}")).next(Acquisition::BeginAgain)
        })?;
        journal.file.cut_back(end).map_err(doing)?;
        match state {
            Some(state) => {
                journal.at = state.at;
                Ok(Some((journal, state)))
            }
            None => journal.remove().map(|()| None),
        }
    }

    /// Removes the journal.
    pub fn remove(self) -> Result<()> {
        self.0.remove()
    }
}

/// What the custody log says of a journal.
#[derive(Debug, Clone, Copy)]
pub enum Signed<'a> {
    /// No custody log is kept.
    NotKept,
    /// Nothing.
    Nothing,
    /// It has this SHA-256, in hexadecimal.
    As(&'a str),
}

impl Journal {
    fn lines_from_first(&self) -> std::io::Result<BufReader<&File>> {
        let mut file: &File = self.file.file();
        file.seek(SeekFrom::Start(0))?;
        Ok(BufReader::new(file))
    }

    /// Returns where the beginning with this SHA-256 ends, which is at the end of a line.
    fn end_of(&mut self, sha256: &str) -> std::io::Result<Option<u64>> {
        let mut lines = self.lines_from_first()?;
        let (mut line, mut digest, mut end) = (Vec::new(), Sha256::new(), 0);
        loop {
            line.clear();
            let len = lines.by_ref().take(RECORD_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
            if len == 0 {
                return Ok(None);
            }
            end += len;
            digest.update(&line);
            if hex(&digest.clone().finalize()) == sha256 {
                return Ok(Some(end));
            }
        }
    }

    /// Returns whether there is at most one record.
    fn has_one_record(&mut self) -> std::io::Result<bool> {
        let mut lines = self.lines_from_first()?;
        let mut line = Vec::new();
        lines.by_ref().take(RECORD_BYTES_MAX).read_until(b'\n', &mut line)?;
        Ok(lines.fill_buf()?.is_empty())
    }

    /// Reads all records before `end`.
    fn read(&mut self, end: u64) -> std::io::Result<JournalScan> {
        let size = self.file.file().metadata()?.len().min(end);
        let mut sha256 = Sha256::new();
        let mut lines = self.lines_from_first()?.take(size);
        let (mut state, mut end, mut number) = (None::<AcquisitionState>, 0, 0);
        let mut line = Vec::new();
        loop {
            line.clear();
            number += 1;
            let len = lines.by_ref().take(RECORD_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
            let is_last = end + len == size;
            let Some(record) = parse(&line) else {
                // A crash leaves an incomplete record at the end; elsewhere it is damage.
                self.sha256 = sha256;
                return Ok(if is_last { Ok((state, end)) } else { Err((number, BadRecord::NoRecord)) });
            };
            let applied = match (&mut state, record) {
                (Some(state), record) => state.apply(record),
                (None, JournalRecord::Start(start)) => begin(*start).map(|begun| state = Some(begun)),
                (None, _) => Err(BadRecord::NotTheBeginning),
            };
            if let Err(why) = applied {
                return Ok(Err((number, why)));
            }
            sha256.update(&line);
            end += len;
        }
    }

    /// Appends a record durably, and has it signed. Returns its length in bytes.
    pub fn append(&mut self, record: &JournalRecord) -> Result<u64> {
        let doing = |error: &dyn std::fmt::Display| {
            Error::failed(format!("writing the journal {}: {error}", self.path.display()))
        };
        let json = serde_json::to_string(record).map_err(|error| doing(&error))?;
        let line = format!("{} {json}\n", check(json.as_bytes()));
        self.file.append(line.as_bytes(), true).map_err(|error| doing(&error))?;
        self.sha256.update(&line);
        if let JournalRecord::Checkpoint(checkpoint) = record {
            self.at = checkpoint.at;
        }
        if let Some(witness) = &self.witness {
            witness(self.at, hex(&self.sha256.clone().finalize()))?;
        }
        Ok(line.len() as u64)
    }

    /// Removes the journal at the end of the acquisition.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path)
            .and_then(|()| sync_directory_of(&self.path))
            .map_err(|error| Error::io(format_args!("removing the journal {}", self.path.display()), &error))
    }
}

fn begin(start: Start) -> std::result::Result<AcquisitionState, BadRecord> {
    if !(1..=VERSION).contains(&start.version) {
        return Err(BadRecord::Version(start.version));
    }
    Ok(AcquisitionState::new(start)?)
}

fn parse(line: &[u8]) -> Option<JournalRecord> {
    let (checked, json) = line.strip_suffix(b"\n")?.split_at_checked(CHECK_DIGITS)?;
    let json = json.strip_prefix(b" ")?;
    if check(json).as_bytes() != checked {
        return None;
    }
    serde_json::from_slice(json).ok()
}

fn check(json: &[u8]) -> String {
    let mut digits = blake3::hash(json).to_hex().to_string();
    digits.truncate(CHECK_DIGITS);
    digits
}

/// The error for a journal with another content than the one that was signed.
fn altered(path: &Path) -> Error {
    let path = path.display();
    Error::evidence(format!(
        "the journal {path} is not the one that the custody log vouches for: it was altered, or belongs to another acquisition"
    )).next(Acquisition::DistrustJournal)
}

/// The error for a journal of which nothing was signed.
fn unsigned(path: &Path) -> Error {
    let path = path.display();
    Error::evidence(format!(
        "no record of the custody log that is signed with your key vouches for the journal {path}: another user or an \
         earlier version of this program wrote it, or the log or the journal was exchanged"
    ))
    .next(Acquisition::AskWriterOrBeginAgain)
}

/// Another process has the journal open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is in use: this acquisition is running already; wait for it", .0.display())]
pub(super) struct Running(pub(super) PathBuf);

fn in_use(path: &Path) -> Error {
    Error::caused(Kind::Failed, Running(path.to_owned()))
}
