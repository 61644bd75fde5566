//! The journal on disk.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};
use cheetah_image::append::Appender;
use cheetah_image::own_file::{Locked, OwnFile};

use super::{AcquisitionState, JournalRecord, Start, VERSION};

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
type JournalScan = std::result::Result<(Option<AcquisitionState>, u64), (u64, String)>;

/// A journal open for appending, by this process alone.
#[derive(Debug)]
pub struct Journal {
    file: Appender,
    path: PathBuf,
}

impl Journal {
    /// Creates a journal at `path`, where there must be none.
    pub fn create(path: &Path, start: &Start) -> Result<Self> {
        drop(JOURNAL.create(path)?);
        let Locked::Held { file, .. } = JOURNAL.open_locked(path)? else { return Err(in_use(path)) };
        let mut journal = Self { file: Appender::new(file, 0), path: path.to_owned() };
        journal.append(&JournalRecord::Start(Box::new(start.clone())))?;
        sync_directory_of(path)
            .map_err(|error| Error::io(format_args!("making the journal {}", path.display()), &error))?;
        Ok(journal)
    }

    /// Opens the journal at `path` without reading it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If another process has it open, or the file is not a journal.
    pub fn lock(path: &Path) -> Result<Option<Self>> {
        match JOURNAL.open_locked(path)? {
            Locked::Held { file, .. } => {
                let doing = |error| Error::io(format_args!("reading the journal {}", path.display()), &error);
                let end = file.metadata().map_err(doing)?.len();
                Ok(Some(Self { file: Appender::new(file, end), path: path.to_owned() }))
            }
            Locked::InUse => Err(in_use(path)),
            Locked::Absent => Ok(None),
        }
    }

    /// Opens the journal at `path` and reads it; `None` if there is none, or a crash cut off its first record.
    pub fn open(path: &Path) -> Result<Option<(Self, AcquisitionState)>> {
        let doing = |error: std::io::Error| Error::io(format_args!("reading the journal {}", path.display()), &error);
        let Some(journal) = Self::lock(path)? else { return Ok(None) };
        let (state, end) = journal.read().map_err(doing)?.map_err(|(line, why)| {
            Error::failed(format!(
                "the journal {} is damaged: line {line} is {why}; begin again with --restart",
                path.display()
            ))
        })?;
        let journal = journal.cut(end).map_err(doing)?;
        match state {
            Some(state) => Ok(Some((journal, state))),
            None => journal.remove().map(|()| None),
        }
    }

    /// Cuts off what follows the first `end` bytes.
    fn cut(self, end: u64) -> std::io::Result<Self> {
        Ok(Self { file: Appender::cut(self.file.into_file(), end)?, path: self.path })
    }

    /// Reads all records.
    fn read(&self) -> std::io::Result<JournalScan> {
        let mut file = self.file.file();
        file.seek(SeekFrom::Start(0))?;
        let size = file.metadata()?.len();
        let mut lines = BufReader::new(file);
        let (mut state, mut end, mut number) = (None::<AcquisitionState>, 0, 0);
        let mut line = Vec::new();
        loop {
            line.clear();
            number += 1;
            let len = lines.by_ref().take(RECORD_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
            let is_last = end + len == size;
            let Some(record) = parse(&line) else {
                // A crash leaves an incomplete record at the end; elsewhere it is damage.
                return Ok(if is_last { Ok((state, end)) } else { Err((number, "no record".into())) });
            };
            let applied = match (&mut state, record) {
                (Some(state), record) => state.apply(record).map_err(str::to_owned),
                (None, JournalRecord::Start(start)) => begin(*start).map(|begun| state = Some(begun)),
                (None, _) => Err("not the beginning".to_owned()),
            };
            if let Err(why) = applied {
                return Ok(Err((number, why)));
            }
            end += len;
        }
    }

    /// Appends a record durably. Returns its length in bytes.
    pub fn append(&mut self, record: &JournalRecord) -> Result<u64> {
        let doing = |error: &dyn std::fmt::Display| {
            Error::failed(format!("writing the journal {}: {error}", self.path.display()))
        };
        let json = serde_json::to_string(record).map_err(|error| doing(&error))?;
        let line = format!("{} {json}\n", check(json.as_bytes()));
        self.file.append(line.as_bytes(), true).map_err(|error| doing(&error))?;
        Ok(line.len() as u64)
    }

    /// Removes the journal at the end of the acquisition.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path)
            .and_then(|()| sync_directory_of(&self.path))
            .map_err(|error| Error::io(format_args!("removing the journal {}", self.path.display()), &error))
    }
}

fn begin(start: Start) -> std::result::Result<AcquisitionState, String> {
    if !(1..=VERSION).contains(&start.version) {
        return Err(format!("of version {}, which this program does not know", start.version));
    }
    AcquisitionState::new(start).map_err(|error| error.to_string())
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

fn in_use(path: &Path) -> Error {
    Error::failed(format!("{} is in use: this acquisition is running already; wait for it", path.display()))
}

/// Makes the entries of the directory of `path` durable.
pub(crate) fn sync_directory_of(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
