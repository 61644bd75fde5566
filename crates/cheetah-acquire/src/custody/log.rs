//! A log open for appending.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use cheetah_image::hash::hex;
use cheetah_image::{Error, Result};
use rustix::fs::FlockOperation;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

use super::check::{Read, Trust, read};
use super::event::Event;
use super::key::{KeyId, SigningKey};
use super::record::Draft;
use super::{LINE_BYTES_MAX, LINES_MAX};

/// A log open for appending, by this process alone.
///
/// Every record is on stable storage when [`CustodyLog::append`] returns. A crash can cut off no more than the record
/// being written; the next one says so.
#[derive(Debug)]
pub struct CustodyLog {
    file: File,
    path: PathBuf,
    key: SigningKey,
    by: By,
    end: Option<End>,
}

/// Where a log ends.
#[derive(Debug, Clone, Copy)]
struct End {
    seq: u64,
    lines: u64,
    prev: [u8; 32],
    torn: u64,
    open_line: bool,
    key: Option<KeyId>,
}

/// Who writes.
#[derive(Debug, Clone)]
struct By {
    host: String,
    user: String,
}

/// A record that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Its number, from 1.
    pub seq: u64,
    /// SHA-256 of its line, newline included. That of the last record, noted on paper, shows later that nothing was cut
    /// off before it.
    pub sha256: String,
}

impl CustodyLog {
    /// Where the log of `image` is: `x.raw.custody` beside `x.raw`.
    pub fn path_for(image: &Path) -> PathBuf {
        let mut name = image.as_os_str().to_owned();
        name.push(".custody");
        name.into()
    }

    /// Opens the log at `path`, or makes an empty one, to append what `key` signs.
    ///
    /// # Errors
    ///
    /// [`Error::Evidence`] if the log has been tampered with: nothing is appended to such a one. [`Error::Failed`] if
    /// somebody else is writing to it, or it cannot be read or made.
    pub fn open(path: &Path, key: SigningKey) -> Result<Self> {
        let new = !path.exists();
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        Self::of(opened, path, key, new)
    }

    /// As [`Self::open`], but only a log that is there.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_existing(path: &Path, key: SigningKey) -> Result<Self> {
        let opened = OpenOptions::new().read(true).append(true).open(path);
        Self::of(opened, path, key, false)
    }

    fn of(opened: std::io::Result<File>, path: &Path, key: SigningKey, new: bool) -> Result<Self> {
        let doing = |error| Error::io(format_args!("opening the custody log {}", path.display()), &error);
        let file = opened.map_err(doing)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => Error::failed(format!(
                "the custody log {} is being written by another process; wait until it is done",
                path.display()
            )),
            errno => doing(errno.into()),
        })?;
        if new {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(doing)?;
        }
        let mut log = Self { file, path: path.to_owned(), key, by: By::us(), end: None };
        log.end = Some(log.find_end()?);
        Ok(log)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record, and flushes it. Blocks for as long as that takes, usually some milliseconds.
    ///
    /// # Errors
    ///
    /// If it cannot be written (a full disk). It may be tried again.
    pub fn append(&mut self, event: &Event) -> Result<Receipt> {
        // Taken, and put back when all went well: after a write that failed, the file's end has to be found again.
        let end = match self.end.take() {
            Some(end) => end,
            None => self.find_end()?,
        };
        let (line, next) = self.seal(event, &end)?;
        let open = if end.open_line { &b"\n"[..] } else { b"" };
        let written = self.file.write_all(&[open, &line].concat()).and_then(|()| self.file.sync_data());
        written.map_err(|error| Error::io(format_args!("writing the custody log {}", self.path.display()), &error))?;
        self.end = Some(next);
        Ok(Receipt { seq: next.seq, sha256: hex(&next.prev) })
    }

    /// The line, and where the log ends with it.
    fn seal(&self, event: &Event, end: &End) -> Result<(Vec<u8>, End)> {
        let public = self.key.public();
        let introduce = end.key != Some(public.id());
        let draft = Draft {
            seq: end.seq + 1,
            time: now(),
            tool: concat!("cheetah ", env!("CARGO_PKG_VERSION")),
            host: &self.by.host,
            user: &self.by.user,
            event,
            torn: end.torn,
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
        Ok((line, End { seq: end.seq + 1, lines: end.lines + 1, prev, torn: 0, open_line: false, key }))
    }

    fn find_end(&mut self) -> Result<End> {
        let doing = |error| Error::io(format_args!("reading the custody log {}", self.path.display()), &error);
        self.file.rewind().map_err(doing)?;
        let Read { report, prev, torn, open_line, key } =
            read(BufReader::new(&self.file), Trust::Anyone).map_err(doing)?;
        if let Some(problem) = &report.problem {
            return Err(Error::Evidence(format!(
                "the custody log {} has been tampered with, so nothing is added to it: {problem}; keep it, and acquire \
                 to another name",
                self.path.display()
            )));
        }
        Ok(End { seq: report.records, lines: report.lines, prev, torn, open_line, key })
    }
}

fn now() -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    // Fails only for years that need more than four digits.
    OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

impl By {
    /// This machine, and who runs this process; behind sudo, for whom.
    fn us() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let uid = rustix::process::getuid().as_raw();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = name_of(uid, &passwd).map_or_else(|| format!("uid {uid}"), str::to_owned);
        let user = match std::env::var("SUDO_USER") {
            Ok(behind) if uid == 0 && !behind.is_empty() => format!("{user} for {behind}"),
            _ => user,
        };
        Self { host, user }
    }
}

/// The name of a user, from the text of a passwd(5) file.
fn name_of(uid: u32, passwd: &str) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests;
