//! The custody log of a drive that is being filled or loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::fill::{FillEvent, FillObserver, FillObservers};
use cheetah_drive::lending::{KeyLending, LendingRecord};
use cheetah_drive::{AcceptanceRecord, DriveFile, HashChoice, Image};
use cheetah_error::Result;
use cheetah_image::{BadRange, Identity};
use cheetah_unlock::Outcome;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    ContentOf, Custodian, CustodyEvent, CustodyLog, FILES_LOGGED_TOGETHER, FileRead, Finished, SigningKey, Span,
    Started, source, verify_log,
};

/// The maximum number of ranges in the log, of those that are unreadable; the drive's map has all of them.
const RANGES_LOGGED_MAX: usize = 10_000;

/// A drive's custody log while the drive is filled or loaded. It is opened at the first event, so that a process that
/// loses the race for a drive fails with the drive's error, not with that of a locked log.
#[derive(Debug)]
pub struct FillLog {
    drive: PathBuf,
    path: PathBuf,
    custodian: Custodian,
    log: Mutex<Option<CustodyLog>>,
}

impl FillLog {
    /// Returns the log beside the drive file at `drive`, to be signed with the examiner's own key.
    pub fn beside(drive: &Path, custodian: &Custodian) -> Self {
        let (path, custodian) = (CustodyLog::path_for(drive), custodian.clone());
        Self { drive: drive.to_owned(), path, custodian, log: Mutex::default() }
    }

    /// Records that `drive` is filled from `found`.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn started(&self, found: &Identity, drive: &Path, hashes: HashChoice, lazy: bool) -> Result<()> {
        let mut started = Started::new(found, &Value::Null, vec![path_to_text(drive).into_owned()])?;
        started.options = [("hash", hashes.to_string()), ("lazy", lazy.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        self.append(CustodyEvent::Started(Box::new(started)))
    }

    /// Records that the drive gets the content of a volume, and what keys did to all volumes of the source, if any were tried.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn volume(&self, outcome: Option<Outcome>, content: &ContentOf) -> Result<()> {
        if let Some(outcome) = outcome {
            self.append(CustodyEvent::Unlocked(Box::new(outcome)))?;
        }
        self.append(content.event())
    }

    /// Records what is in doubt about the source although it can be read, if anything is.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn doubts(&self, doubts: &[String]) -> Result<()> {
        match doubts {
            [] => Ok(()),
            doubts => self.append(CustodyEvent::Doubts { doubts: doubts.to_vec() }),
        }
    }

    /// Records that a load has ended: the ranges that its source did not yield, the files that it read, and the image.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn loaded(&self, image: &Image, bad: &[BadRange], files: &[FileRead]) -> Result<()> {
        for bad in bad.iter().take(RANGES_LOGGED_MAX) {
            let (range, why, corrupt) = (bad.range().into(), bad.why.to_string(), bad.corrupt);
            self.append(CustodyEvent::Unreadable { range, why, corrupt })?;
        }
        for files in files.chunks(FILES_LOGGED_TOGETHER) {
            self.append(CustodyEvent::SourceFiles { files: files.to_vec() })?;
        }
        self.finished(image, BadRange::missing_bytes(bad))
    }

    /// Records that the image is complete, and flushed at every node, except for `unreadable_bytes`, of which `corrupt_bytes` are
    /// corrupt in the source.
    fn finished(&self, image: &Image, (unreadable_bytes, corrupt_bytes): (u64, u64)) -> Result<()> {
        self.append(CustodyEvent::Hashes { hashes: image.hashes.clone() })?;
        let finished = Finished {
            size: image.size,
            unreadable_bytes,
            corrupt_bytes,
            hashes: image.hashes.clone(),
            notes: image.note().iter().map(ToString::to_string).collect(),
            digests: image.digests.as_ref().map(|digests| digests.blake3.clone()),
            drive: Some(DriveFile::load(&self.drive)?.id),
            report: false,
            head_in_report: false,
        };
        self.append(CustodyEvent::Finished(Box::new(finished)))
    }

    /// Records that ranges that were lost were fetched again from `found`, and are as they were loaded.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn refetched(&self, found: &Identity, ranges: &[ByteRange]) -> Result<()> {
        self.append(CustodyEvent::Refetched {
            source: source(found)?,
            ranges: ranges.iter().take(RANGES_LOGGED_MAX).map(|range| Span::from(*range)).collect(),
            bytes: ranges.iter().map(|range| range.len).sum(),
        })
    }

    /// Records the decision between writers that wrote to the drive apart from each other, before it is carried out.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn kept(&self, kept: &[String], overwritten: &[String]) -> Result<()> {
        self.append(CustodyEvent::Kept { kept: kept.to_vec(), overwritten: overwritten.to_vec() })
    }

    /// Records that unverified ranges of a sealed drive are used.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn accepted_unverified(&self, ranges: &[ByteRange]) -> Result<()> {
        self.append(CustodyEvent::AcceptedUnverified {
            ranges: ranges.iter().take(RANGES_LOGGED_MAX).map(|range| Span::from(*range)).collect(),
            bytes: ranges.iter().map(|range| range.len).sum(),
        })
    }

    /// Records that nodes are lent keys of the sealed drive.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded.
    pub fn key_lent(&self, lending: &KeyLending) -> Result<()> {
        self.append(CustodyEvent::KeyLent(Box::new(lending.clone())))
    }

    /// Records that it failed or was stopped. If that cannot be recorded, a warning is logged: the failure itself matters
    /// more.
    pub fn stopped(&self, why: &str) {
        if let Err(error) = self.append(CustodyEvent::Stopped { why: why.to_owned() }) {
            tracing::warn!("not on record: {error}");
        }
    }

    fn append(&self, event: CustodyEvent) -> Result<()> {
        let mut open = self.log.lock();
        let log = match &mut *open {
            Some(log) => log,
            none => none.insert(CustodyLog::open(&self.path, SigningKey::own()?, &self.custodian)?),
        };
        log.append(&event).map(drop)
    }
}

impl FillObservers for Custodian {
    fn of(&self, drive: &Path) -> Arc<dyn FillObserver> {
        Arc::new(FillLog::beside(drive, self))
    }
}

impl AcceptanceRecord for Custodian {
    fn accepted(&self, drive: &DriveFile, ranges: &[ByteRange]) -> Result<()> {
        FillLog::beside(&drive.path, self).accepted_unverified(ranges)
    }
}

impl LendingRecord for Custodian {
    fn lent(&self, drive: &DriveFile, lending: &KeyLending) -> Result<()> {
        FillLog::beside(&drive.path, self).key_lent(lending)
    }
}

impl FillObserver for FillLog {
    fn vouch(&self, read: u64, digest: String) -> Result<()> {
        self.append(CustodyEvent::Checkpoint { at: read, journal: Some(digest) })
    }

    fn has_vouched(&self, digest: &str) -> Result<bool> {
        if self.path.symlink_metadata().is_err() {
            return Ok(false);
        }
        let Some(key) = SigningKey::existing()?.map(|key| key.public()) else { return Ok(false) };
        let log = verify_log(&self.path, &self.custodian.known(vec![key]))?;
        let mut signed = log.journal.iter().chain(&log.journal_before);
        Ok(log.problem.is_none() && signed.any(|signed| signed.key == key.id() && signed.sha256 == digest))
    }

    fn observe(&self, event: FillEvent) -> Result<()> {
        match event {
            FillEvent::Opened { source: Some(found), read } => self.append(CustodyEvent::Resumed {
                at: read,
                source: source(&found.identity)?,
                changed: Vec::new(),
                opened: source(&found.opening)?,
            }),
            FillEvent::Opened { source: None, .. } => {
                self.append(CustodyEvent::Error { range: None, what: "the source does not answer".into() })
            }
            FillEvent::Distrusted { read } => self.append(CustodyEvent::Error {
                range: None,
                what: format!(
                    "this log does not vouch for the record of what was filled ({read} bytes), so all of it is fetched again"
                ),
            }),
            FillEvent::Lost { why } => self.append(CustodyEvent::Error { range: None, what: why }),
            FillEvent::Back { source: found } => self.append(CustodyEvent::Reconnected {
                source: source(&found.identity)?,
                changed: Vec::new(),
                opened: source(&found.opening)?,
            }),
            FillEvent::Changed { what } => self.append(CustodyEvent::SourceChanged { what }),
            FillEvent::Complete { image, unreadable } => {
                for range in unreadable.iter().take(RANGES_LOGGED_MAX) {
                    let why = "the source could not read it".to_owned();
                    self.append(CustodyEvent::Unreadable { range: Span::from(*range), why, corrupt: false })?;
                }
                self.finished(&image, (unreadable.iter().map(|range| range.len).sum(), 0))
            }
            FillEvent::Failed { why } => self.append(CustodyEvent::Error { range: None, what: why }),
            FillEvent::Stopped { read } => {
                self.append(CustodyEvent::Stopped { why: format!("the filling was ended with {read} bytes there") })
            }
        }
    }
}
