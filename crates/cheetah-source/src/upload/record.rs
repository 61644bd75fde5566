//! The record of uploads, from which they are resumed.
//!
//! `NAME.upload` lies in the folder of the command during an upload. It is a text file with a record on each line, and is only
//! appended to. An incomplete line at the end, left by a crash, is ignored.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};
use cheetah_image::own_file::{Locked, OwnFile};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::web::target::{ObjectTarget, StoredPart};

/// The maximum length of the record in bytes.
const BYTES_MAX: u64 = 1 << 30;
const START: &str = r#"{"uploads_to":"#;

const RECORD: OwnFile = OwnFile {
    name: "record of an upload",
    begins: |head| head.iter().zip(START.as_bytes()).all(|(byte, start)| byte == start),
};

/// A line of the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first line: the object, as the user named it.
    UploadsTo(String),
    /// An upload has begun.
    Begun(BegunUpload),
    /// The store has confirmed a part of the upload to this object.
    Part { object: String, part: StoredPart },
}

/// An upload that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunUpload {
    /// The object's name within its folder.
    pub object: String,
    /// The store's name of the upload.
    pub id: String,
    /// The mark of the object that it makes.
    pub token: String,
    pub part_bytes: u64,
}

/// The record of the uploads to one destination, held by this process alone.
pub struct UploadRecord {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    /// The latest upload to each object, with its parts; a part that was stored again is there twice.
    uploads: Vec<(BegunUpload, Vec<StoredPart>)>,
}

impl UploadRecord {
    /// Opens the record at `path` of uploads to `target`; creates it if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the file is not a record, or one of uploads to another object. [`Error::Failed`] if another
    /// process uploads, or the record is damaged or cannot be written.
    pub fn open(path: &Path, target: &ObjectTarget) -> Result<Self> {
        let Locked::Held { file, .. } = RECORD.open_or_create_locked(path)? else { return Err(in_use(path)) };
        let record = Self { path: path.to_owned(), state: Mutex::new(State { file, uploads: Vec::new() }) };
        let to = target.shown();
        match record.read()? {
            None => record.append(&Line::UploadsTo(to))?,
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
    /// [`Error::Misuse`] if the file is not a record.
    pub fn exists(path: &Path) -> Result<bool> {
        Ok(RECORD.open(path)?.is_some())
    }

    /// Aborts all uploads at the store, and removes the record.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the store cannot be reached, or the record cannot be removed. It is kept then.
    pub async fn abort(&self, target: &ObjectTarget) -> Result<()> {
        let begun: Vec<_> = self.state.lock().uploads.iter().map(|(begun, _)| begun.clone()).collect();
        for BegunUpload { object, id, .. } in begun {
            target.beside(&object)?.abort(&id).await?;
        }
        self.remove()
    }

    /// Removes the record of uploads that are complete.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        RECORD.remove(&self.path)
    }

    /// Returns the latest upload to an object, and its parts in order.
    pub(super) fn latest(&self, object: &str) -> Option<(BegunUpload, Vec<StoredPart>)> {
        self.state.lock().uploads.iter().find(|(begun, _)| begun.object == object).cloned()
    }

    pub(super) fn begun(&self, begun: BegunUpload) -> Result<()> {
        self.add(Line::Begun(begun))
    }

    pub(super) fn stored(&self, object: &str, part: StoredPart) -> Result<()> {
        self.add(Line::Part { object: object.to_owned(), part })
    }

    fn add(&self, line: Line) -> Result<()> {
        self.append(&line)?;
        self.state.lock().apply(line).map_err(|why| self.damaged(why))
    }

    /// Reads the record; returns what it is of, or `None` if it is empty.
    fn read(&self) -> Result<Option<String>> {
        let doing = |error: std::io::Error| Error::io(format_args!("reading {}", self.path.display()), &error);
        let mut state = self.state.lock();
        let (mut to, mut end, mut text) = (None, 0, Vec::new());
        let file = state.file.try_clone().map_err(doing)?;
        let size = file.metadata().map_err(doing)?.len();
        if size > BYTES_MAX {
            return Err(self.damaged("it is too large"));
        }
        let mut lines = BufReader::new(file);
        while lines.read_until(b'\n', &mut text).map_err(doing)? > 0 {
            let is_last = end + text.len() as u64 == size;
            let line = text.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
            match (line, &to) {
                (None, _) if is_last => break,
                (Some(Line::UploadsTo(object)), None) => to = Some(object),
                (Some(line), Some(_)) => state.apply(line).map_err(|why| self.damaged(why))?,
                _ => return Err(self.damaged("a line is invalid")),
            }
            end += text.len() as u64;
            text.clear();
        }
        state.file.set_len(end).map_err(doing)?;
        Ok(to)
    }

    fn append(&self, line: &Line) -> Result<()> {
        let doing = |why: &dyn std::fmt::Display| Error::failed(format!("writing {}: {why}", self.path.display()));
        let mut text = serde_json::to_string(line).map_err(|error| doing(&error))?;
        text.push('\n');
        let mut state = self.state.lock();
        state.file.write_all(text.as_bytes()).and_then(|()| state.file.sync_data()).map_err(|error| doing(&error))
    }

    fn damaged(&self, why: &str) -> Error {
        let path = self.path.display();
        Error::failed(format!("{path} is damaged: {why}; remove it, and the unfinished upload at the store"))
    }
}

impl State {
    fn apply(&mut self, line: Line) -> std::result::Result<(), &'static str> {
        match line {
            Line::UploadsTo(_) => return Err("a second beginning"),
            Line::Begun(begun) => {
                self.uploads.retain(|(earlier, _)| earlier.object != begun.object);
                self.uploads.push((begun, Vec::new()));
            }
            Line::Part { object, part } => {
                let upload = self.uploads.iter_mut().find(|(begun, _)| begun.object == object);
                upload.ok_or("a part of no upload")?.1.push(part);
            }
        }
        Ok(())
    }
}

fn in_use(path: &Path) -> Error {
    Error::failed(format!("{} is in use: this upload is running already; wait for it", path.display()))
}
