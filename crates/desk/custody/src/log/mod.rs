//! A log open for appending.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Kind, Result};
use cheetah_image::append::Appender;
use cheetah_image::hash::hex;
use cheetah_image::own_file::Locked;
use cheetah_image::publish::sync_directory_of;
use cheetah_kit::machine::{host_name, user_name};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::check::{CheckedLog, Trust, read};
use crate::custodian::Custodian;
use crate::event::CustodyEvent;
use crate::head::Head;
use crate::key::{KeyId, SigningKey};
use crate::log_file::LOG;
use crate::os;
use crate::record::Draft;
use crate::{LINE_BYTES_MAX, LINES_MAX};

/// Another process writes to a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the custody log {} is being written by another process; wait until it is done", .0.display())]
pub(crate) struct InUse(PathBuf);

/// A log open for appending, by this process alone.
///
/// Every record is on stable storage when [`CustodyLog::append`] returns. An append that fails leaves the log as it
/// was. A crash can leave an unfinished last line; the next append replaces it with a record that says so.
#[derive(Debug)]
pub struct CustodyLog {
    file: Appender,
    path: PathBuf,
    key: SigningKey,
    /// Notes each head.
    custodian: Custodian,
    by: LogWriter,
    end: Option<End>,
    /// An unfinished last line that no record mentions yet.
    unfinished: Option<Unfinished>,
    /// Whether this process made the file.
    made: bool,
}

/// The end of a log.
#[derive(Debug, Clone, Copy)]
struct End {
    seq: u64,
    lines: u64,
    bytes: u64,
    prev: [u8; 32],
    /// The digest of the first record.
    first: Option<[u8; 32]>,
    open_line: bool,
    key: Option<KeyId>,
}

/// An unfinished last line.
#[derive(Debug, Clone)]
struct Unfinished {
    bytes: u64,
    sha256: String,
}

/// The machine and the user that write.
#[derive(Debug, Clone)]
struct LogWriter {
    host: String,
    user: String,
}

/// The number and hash of a record that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Its number, from 1.
    pub seq: u64,
    /// SHA-256 of its line, newline included. The last record's, noted on paper, later proves that nothing before it
    /// was cut off.
    pub sha256: String,
}

impl CustodyLog {
    /// Returns the path of the log of `image`: `x.raw.custody` beside `x.raw`.
    pub fn path_for(image: &Path) -> PathBuf {
        let mut name = image.as_os_str().to_owned();
        name.push(".custody");
        name.into()
    }

    /// Opens the log at `path`, or creates it, to append records signed with `key`. The custodian notes its head after each.
    ///
    /// # Errors
    ///
    /// `Kind::Evidence` if the log has been tampered with: nothing is appended to such a log. `Kind::Failed` if
    /// another process is writing to it, or it cannot be read or created.
    pub fn open(path: &Path, key: SigningKey, custodian: &Custodian) -> Result<Self> {
        Self::of(LOG.open_or_create_locked(path)?, path, (key, custodian))
    }

    /// As [`Self::open`], for a log that exists.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_existing(path: &Path, key: SigningKey, custodian: &Custodian) -> Result<Self> {
        Self::of(LOG.open_locked(path)?, path, (key, custodian))
    }

    fn of(locked: Locked, path: &Path, (key, custodian): (SigningKey, &Custodian)) -> Result<Self> {
        let shown = path.display();
        let (file, new) = match locked {
            Locked::Held { file, is_new } => (file, is_new),
            Locked::InUse => {
                return Err(Error::caused(Kind::Failed, InUse(path.to_owned())));
            }
            Locked::Absent => return Err(Error::failed(format!("there is no custody log {shown}"))),
        };
        if new {
            let doing = |error| Error::io(format_args!("creating the custody log {shown}"), &error);
            sync_directory_of(path).map_err(doing)?;
        }
        let by = LogWriter::current();
        let file = Appender::new(file, 0);
        let (path, custodian) = (path.to_owned(), custodian.clone());
        let mut log = Self { file, path, key, custodian, by, end: None, unfinished: None, made: new };
        log.end = Some(log.find_end()?);
        Ok(log)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record and flushes it to stable storage. Blocks, usually for some milliseconds.
    ///
    /// # Errors
    ///
    /// If it cannot be written (a full disk). The log is then as it was before, and the append may be tried again.
    pub fn append(&mut self, event: &CustodyEvent) -> Result<Receipt> {
        // Restored only on success: after a failed write, the next append searches for the end again.
        let mut end = match self.end.take() {
            Some(end) => end,
            None => self.find_end()?,
        };
        if let Some(Unfinished { bytes, sha256 }) = self.unfinished.clone() {
            self.file.cut_back(end.bytes).map_err(|error| failed(&self.path, &error))?;
            end = self.write(&CustodyEvent::Repaired { dropped_bytes: bytes, sha256 }, &end)?;
            self.unfinished = None;
        }
        let next = self.write(event, &end)?;
        self.end = Some(next);
        self.note_head(&next, !matches!(event, CustodyEvent::Verified(_) | CustodyEvent::RedundancyCompared(_)));
        Ok(Receipt { seq: next.seq, sha256: hex(&next.prev) })
    }

    /// Has the custodian note the head.
    fn note_head(&self, end: &End, is_evidence: bool) {
        if let Some(first) = end.first {
            let head = Head::sign(first, end.seq, end.prev, now(), &self.key);
            self.custodian.note(&self.path, head, is_evidence);
        }
    }

    /// The log's head; `None` of an empty log. After a failed append, it is that before.
    pub fn head(&self) -> Option<Head> {
        let end = self.end?;
        Some(Head::sign(end.first?, end.seq, end.prev, now(), &self.key))
    }

    /// Writes and flushes one record; returns where the log ends then.
    fn write(&mut self, event: &CustodyEvent, end: &End) -> Result<End> {
        let (mut bytes, mut next) = self.seal(event, end)?;
        if end.open_line {
            bytes.insert(0, b'\n');
        }
        next.bytes = end.bytes + bytes.len() as u64;
        self.file.append(&bytes, true).map_err(|error| failed(&self.path, &error))?;
        Ok(next)
    }

    /// Returns the signed line, and the end of the log with it.
    fn seal(&self, event: &CustodyEvent, end: &End) -> Result<(Vec<u8>, End)> {
        let public = self.key.public();
        let introduce = end.key != Some(public.id());
        let draft = Draft {
            seq: end.seq + 1,
            time: now(),
            tool: concat!("cheetah ", env!("CARGO_PKG_VERSION")),
            host: &self.by.host,
            user: &self.by.user,
            credential: self.custodian.acting_as(),
            event,
            key: public.id().to_string(),
            public_key: introduce.then(|| public.to_string()),
            prev: hex(&end.prev),
        };
        let line = draft.seal(&self.key)?;
        if line.len() > LINE_BYTES_MAX || end.lines >= LINES_MAX as u64 {
            return Err(Error::failed(format!(
                "the custody log {} is full: it has {} lines, and the next would take {} bytes",
                self.path.display(),
                end.lines,
                line.len()
            )));
        }
        let prev = Sha256::digest(&line).into();
        let key = Some(public.id());
        let first = end.first.or(Some(prev));
        Ok((line, End { seq: end.seq + 1, lines: end.lines + 1, prev, first, open_line: false, key, ..*end }))
    }

    /// The SHA-256 of everything from `offset` on.
    fn digest_from(&self, offset: u64) -> std::io::Result<String> {
        let mut file: &File = self.file.file();
        file.seek(SeekFrom::Start(offset))?;
        // The check has found it no longer than a line may be.
        let mut rest = Vec::new();
        file.take(LINE_BYTES_MAX as u64).read_to_end(&mut rest)?;
        Ok(hex(&Sha256::digest(&rest)))
    }

    fn find_end(&mut self) -> Result<End> {
        let doing = |error| Error::io(format_args!("reading the custody log {}", self.path.display()), &error);
        self.file.mend().map_err(doing)?;
        let mut file: &File = self.file.file();
        file.rewind().map_err(doing)?;
        let CheckedLog { mut report, prev, whole_bytes, open_line, key } =
            read(BufReader::new(file), Trust::Anyone).map_err(doing)?;
        if let Some(problem) = &report.problem {
            return Err(Error::evidence(format!(
                "the custody log {} has been tampered with, so nothing is added to it: {problem}; keep it, and acquire \
                 to another name",
                self.path.display()
            ))
            .because(problem.clone()));
        }
        if let Some(ledger) = self.custodian.ledger() {
            ledger.compare(&mut report, &self.path, &[self.key.public()]);
        }
        let replaced = report.replaced.as_ref().filter(|_| report.records > 0);
        if let Some(problem) = report.heads.iter().find_map(|head| head.problem.as_ref()).or(replaced) {
            return Err(Error::evidence(format!(
                "nothing is added to the custody log {}: {problem}; keep it, and acquire to another name",
                self.path.display()
            )));
        }
        let unfinished = report.unfinished_line.map(|line| line.bytes);
        if let Some(bytes) = unfinished {
            self.unfinished = Some(Unfinished { bytes, sha256: self.digest_from(whole_bytes).map_err(doing)? });
        }
        self.file.set_end(whole_bytes + unfinished.unwrap_or_default());
        let lines = report.records + report.torn_lines;
        let first = report.chain.first().copied();
        Ok(End { seq: report.records, lines, bytes: whole_bytes, prev, first, open_line, key })
    }
}

impl Drop for CustodyLog {
    /// Removes an empty log: without a record it would look like a log that was cut off.
    fn drop(&mut self) {
        if self.made && self.file.file().metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format_args!("writing the custody log {}", path.display()), error)
}

fn now() -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    // Fails only for years of more than four digits.
    OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

impl LogWriter {
    /// Returns this machine and the user of this process; under sudo, also the user who called sudo.
    fn current() -> Self {
        let user = user_name();
        let user = match os::behind_sudo() {
            Some(behind) => format!("{user} for {behind}"),
            None => user,
        };
        Self { host: host_name(), user }
    }
}

#[cfg(test)]
mod tests;
