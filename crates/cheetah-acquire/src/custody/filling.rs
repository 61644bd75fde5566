//! The log of a drive that is filled, or loaded.

use std::path::{Path, PathBuf};

use cheetah_drive::fill::{FillEvent, FillObserver};
use cheetah_drive::{HashChoice, Image};
use cheetah_image::{Identity, Result};
use parking_lot::Mutex;
use serde_json::Value;

use super::{CustodyLog, Event, Finished, SigningKey, Span, Started, source};

/// Unreadable ranges that go into the log one by one; the drive's map has all of them.
const UNREADABLE_LOGGED_MAX: usize = 10_000;

/// A drive's custody log, while an image comes into it. It is opened when there is something to record: who has lost the
/// race for a drive is to be told who has won it, and not that the log is taken.
#[derive(Debug)]
pub struct FillLog {
    path: PathBuf,
    log: Mutex<Option<CustodyLog>>,
}

impl FillLog {
    /// The log beside the drive file at `drive`, to add what the examiner's own key signs.
    pub fn beside(drive: &Path) -> Self {
        Self { path: CustodyLog::path_for(drive), log: Mutex::default() }
    }

    /// An image is to come into `drive` from `found`.
    ///
    /// # Errors
    ///
    /// If it cannot be put on record.
    pub fn started(&self, found: &Identity, drive: &Path, hashes: HashChoice, lazy: bool) -> Result<()> {
        let mut started = Started::new(found, &Value::Null, vec![drive.display().to_string()])?;
        started.options = [("hash", hashes.to_string()), ("lazy", lazy.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        self.append(Event::Started(Box::new(started)))
    }

    /// It is there, flushed at every node.
    ///
    /// # Errors
    ///
    /// If it cannot be put on record.
    pub fn finished(&self, image: &Image, unreadable_bytes: u64) -> Result<()> {
        self.append(Event::Hashes { hashes: image.hashes.clone() })?;
        let finished =
            Finished { size: image.size, unreadable_bytes, hashes: image.hashes.clone(), ..Finished::default() };
        self.append(Event::Finished(Box::new(finished)))
    }

    /// It failed, or was given up. That is what matters then, not that it could not be written.
    pub fn stopped(&self, why: &str) {
        if let Err(error) = self.append(Event::Stopped { why: why.to_owned() }) {
            tracing::warn!("not on record: {error}");
        }
    }

    fn append(&self, event: Event) -> Result<()> {
        let mut open = self.log.lock();
        let log = match &mut *open {
            Some(log) => log,
            none => none.insert(CustodyLog::open(&self.path, SigningKey::own()?)?),
        };
        log.append(&event).map(drop)
    }
}

impl FillObserver for FillLog {
    fn observe(&self, event: FillEvent) -> Result<()> {
        match event {
            FillEvent::Opened { source: Some(found), read } => self.append(Event::Resumed {
                at: read,
                source: source(&found)?,
                changed: Vec::new(),
                opened: Value::Null,
            }),
            FillEvent::Opened { source: None, .. } => {
                self.append(Event::Error { range: None, what: "the source does not answer".into() })
            }
            FillEvent::Lost { why } => self.append(Event::Error { range: None, what: why }),
            FillEvent::Back { source: found } => {
                self.append(Event::Reconnected { source: source(&found)?, changed: Vec::new(), opened: Value::Null })
            }
            FillEvent::Changed { what } => self.append(Event::SourceChanged { what }),
            FillEvent::Complete { image, unreadable } => {
                for range in unreadable.iter().take(UNREADABLE_LOGGED_MAX) {
                    let why = "the source could not read it".to_owned();
                    self.append(Event::Unreadable { range: Span::from(*range), why })?;
                }
                self.finished(&image, unreadable.iter().map(|range| range.len).sum())
            }
            FillEvent::Failed { why } => self.append(Event::Error { range: None, what: why }),
            FillEvent::Stopped { read } => {
                self.append(Event::Stopped { why: format!("the filling was ended with {read} bytes there") })
            }
        }
    }
}
