//! The record of uploads, from which they are resumed.
//!
//! `NAME.upload` lies in the folder of the command during an upload. It is a text file with a record on each line, and is only
//! appended to. An incomplete line at the end, left by a crash, is ignored.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};
use cheetah_image::append::Appender;
use cheetah_image::own_file::{Locked, LockedFile, OwnFile};
use cheetah_image::space;
use parking_lot::Mutex;

use super::part_bytes;
use super::uploads::{BegunUpload, Line, Uploads};
use crate::web::target::{ObjectTarget, StoredPart};

/// The maximum length of the record in bytes.
const BYTES_MAX: u64 = 1 << 30;
/// The bytes that the line of a part may take.
const PART_LINE_BYTES: u64 = 512;
const START: &str = r#"{"uploads_to":"#;

const RECORD: OwnFile = OwnFile {
    name: "record of an upload",
    begins: |head| head.iter().zip(START.as_bytes()).all(|(byte, start)| byte == start),
};

/// The record of the uploads to one destination, held by this process alone.
pub struct UploadRecord {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: Appender,
    uploads: Uploads,
}

impl UploadRecord {
    /// Opens the record at `path` of uploads to `target`; creates it if there is none.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if the file is not a record, or one of uploads to another object. `Kind::Failed` if another
    /// process uploads, or the record is damaged or cannot be written.
    pub fn open(path: &Path, target: &ObjectTarget) -> Result<Self> {
        let Locked::Held { file, is_new } = RECORD.open_or_create_locked(path)? else { return Err(in_use(path)) };
        let state = State::read(file, path)?;
        let record = Self { path: path.to_owned(), state: Mutex::new(state) };
        let to = target.shown();
        let recorded = record.state.lock().uploads.to.clone();
        match recorded {
            None => record.add(Line::UploadsTo(to)).inspect_err(|_| {
                // A full disk leaves no empty record.
                if is_new {
                    let _ = record.remove();
                }
            })?,
            Some(other) if other == to => {}
            Some(other) => {
                let path = path.display();
                return Err(Error::misuse(format!(
                    "{path} is the record of an upload to {other}, not to {to}; complete that one first, or run the command \
                     in another folder"
                )));
            }
        }
        Ok(record)
    }

    /// Returns the bytes that the record of the upload of an object of `size` bytes may take.
    pub fn bytes_max(size: u64) -> u64 {
        let parts = part_bytes(size).map_or(0, |bytes| size.div_ceil(bytes));
        space::RECORD_BYTES.saturating_add(parts.saturating_mul(PART_LINE_BYTES))
    }

    /// Removes the record at `path`, and aborts its uploads at the store; does nothing if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; also if the store cannot be reached.
    pub async fn discard(path: &Path, target: &ObjectTarget) -> Result<()> {
        if Self::exists(path)? { Self::open(path, target)?.abort(target).await } else { Ok(()) }
    }

    /// Returns whether there is a record at `path`.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if the file is not a record.
    pub fn exists(path: &Path) -> Result<bool> {
        Ok(RECORD.open(path)?.is_some())
    }

    /// Aborts all uploads at the store, and removes the record.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if the store cannot be reached, or the record cannot be removed. It is kept then.
    pub async fn abort(&self, target: &ObjectTarget) -> Result<()> {
        let begun: Vec<_> = self.state.lock().uploads.all().cloned().collect();
        for BegunUpload { object, id, .. } in begun {
            target.beside(&object)?.abort(&id).await?;
        }
        self.remove()
    }

    /// Removes the record of uploads that are complete.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        RECORD.remove(&self.path)
    }

    /// Returns the latest upload to an object, and its parts in order.
    pub(super) fn latest(&self, object: &str) -> Option<(BegunUpload, Vec<StoredPart>)> {
        self.state.lock().uploads.latest(object)
    }

    pub(super) fn begun(&self, begun: BegunUpload) -> Result<()> {
        self.add(Line::Begun(begun))
    }

    pub(super) fn stored(&self, object: &str, part: StoredPart) -> Result<()> {
        self.add(Line::Part { object: object.to_owned(), part })
    }

    /// Appends a line durably.
    fn add(&self, line: Line) -> Result<()> {
        let doing = |why: &dyn std::fmt::Display| Error::failed(format!("writing {}: {why}", self.path.display()));
        let writing = |error| Error::io(format_args!("writing {}", self.path.display()), &error);
        let mut text = serde_json::to_string(&line).map_err(|error| doing(&error))?;
        text.push('\n');
        let mut state = self.state.lock();
        state.file.append(text.as_bytes(), true).map_err(writing)?;
        state.uploads.apply(line).map_err(|why| damaged(&self.path, why))
    }
}

impl State {
    /// Reads the record, and removes what a crash left of its last line.
    fn read(file: LockedFile, path: &Path) -> Result<Self> {
        let doing = |error: std::io::Error| Error::io(format_args!("reading {}", path.display()), &error);
        let size = file.metadata().map_err(doing)?.len();
        if size > BYTES_MAX {
            return Err(damaged(path, "it is too large"));
        }
        let read = Uploads::read(BufReader::new(&*file), size).map_err(doing)?;
        let (uploads, end) = read.map_err(|why| damaged(path, why))?;
        Ok(Self { file: Appender::cut(file, end).map_err(doing)?, uploads })
    }
}

fn damaged(path: &Path, why: &str) -> Error {
    let path = path.display();
    Error::failed(format!("{path} is damaged: {why}; remove it, and the unfinished upload at the store"))
}

fn in_use(path: &Path) -> Error {
    Error::failed(format!("{} is in use: this upload is running already; wait for it", path.display()))
}
