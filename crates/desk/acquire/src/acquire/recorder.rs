//! Passing events to the caller and to the custody logs beside the images.

use std::path::PathBuf;
use std::sync::Arc;

use cheetah_custody::{Custodian, CustodyEvent, CustodyLog, Head, SigningKey, Span};
use cheetah_device::ByteRange;
use cheetah_error::Result;
use parking_lot::Mutex;

use crate::journal::Witness;
use crate::order::{AcquireEvent, Destination};

/// The maximum number of unreadable ranges and retries with a record of their own. The coverage map has all of them,
/// and the last record their total size.
const TROUBLES_LOGGED_MAX: u64 = 10_000;

/// The maximum number of replaced connections with a record of their own. The report has the total.
const RECONNECTS_LOGGED_MAX: u64 = 10_000;

/// Passes events on.
pub struct Recorder<'a> {
    events: &'a mut (dyn FnMut(AcquireEvent) + Send),
    /// Shared with the journal, for which the logs vouch.
    logs: Arc<Mutex<Vec<CustodyLog>>>,
    troubles: u64,
    reconnects: u64,
}

impl<'a> Recorder<'a> {
    /// Passes events to `events` alone.
    pub fn new(events: &'a mut (dyn FnMut(AcquireEvent) + Send)) -> Self {
        Self { events, logs: Arc::default(), troubles: 0, reconnects: 0 }
    }

    /// Opens the logs beside the destinations, signed with `key`; from now on events are recorded there, too.
    pub fn keep_logs(
        &mut self,
        destinations: &[Destination],
        (key, custodian): (&SigningKey, &Custodian),
    ) -> Result<()> {
        let mut logs = self.logs.lock();
        for destination in destinations {
            match CustodyLog::open(&CustodyLog::path_for(&destination.path), key.clone(), custodian) {
                Ok(log) => logs.push(log),
                Err(error) => {
                    logs.drain(..).for_each(|log| discard_if_empty(&log));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns the logs as the witness of the journal; `None` if none are kept.
    pub fn witness(&self) -> Option<Witness> {
        let logs = self.logs.clone();
        let keeps = !logs.lock().is_empty();
        keeps.then(|| -> Witness {
            Arc::new(move |at, journal| append(&logs, &CustodyEvent::Checkpoint { at, journal: Some(journal) }))
        })
    }

    /// Returns the path of the log of the destination with this index.
    pub fn log_path(&self, index: usize) -> Option<PathBuf> {
        self.logs.lock().get(index).map(|log| log.path().to_owned())
    }

    /// Returns the head of the log of each destination; nothing if none are kept.
    pub fn heads(&self) -> Vec<Option<Head>> {
        self.logs.lock().iter().map(CustodyLog::head).collect()
    }

    /// Appends a record to every log.
    pub fn record(&mut self, event: &CustodyEvent) -> Result<()> {
        append(&self.logs, event)
    }

    /// Appends a record to the log of the destination with this index.
    pub fn record_for(&mut self, index: usize, event: &CustodyEvent) -> Result<()> {
        self.logs.lock().get_mut(index).map_or(Ok(()), |log| log.append(event).map(drop))
    }

    /// Records the end of the acquisition. A failure to write it is only logged.
    pub fn record_end(&mut self, why: &str, error: bool) {
        let what = why.to_owned();
        let failed = if error { self.record(&CustodyEvent::Error { range: None, what }) } else { Ok(()) };
        if let Err(error) = failed.and_then(|()| self.record(&CustodyEvent::Stopped { why: why.to_owned() })) {
            tracing::warn!("{error}");
        }
    }

    /// Passes an event to the caller, and records it in the logs where it belongs there.
    pub fn tell(&mut self, event: AcquireEvent) -> Result<()> {
        let recorded = match &event {
            AcquireEvent::Retried { offset, len, retries } if self.troubles < TROUBLES_LOGGED_MAX => {
                self.troubles += 1;
                let (range, attempts) =
                    (Span { offset: *offset, len: *len }, u32::try_from(*retries).unwrap_or(u32::MAX));
                self.record(&CustodyEvent::Retry { range, attempts })
            }
            AcquireEvent::Unreadable(bad) if self.troubles < TROUBLES_LOGGED_MAX => {
                self.troubles += 1;
                let range = Span::from(ByteRange::new(bad.offset, bad.len));
                self.record(&CustodyEvent::Unreadable { range, why: bad.why.to_string(), corrupt: bad.corrupt })
            }
            AcquireEvent::Lost { why, .. } => self.record(&CustodyEvent::Error { range: None, what: why.clone() }),
            AcquireEvent::Back { source, changed, opening } => {
                let (source, opened) = (cheetah_custody::source(source)?, cheetah_custody::source(opening)?);
                self.record(&CustodyEvent::Reconnected { source, changed: changed.clone(), opened })
            }
            AcquireEvent::Reconnected { source } if self.reconnects < RECONNECTS_LOGGED_MAX => {
                self.reconnects += 1;
                let (source, changed) = (cheetah_custody::source(source)?, Vec::new());
                self.record(&CustodyEvent::Reconnected { source, changed, opened: serde_json::Value::Null })
            }
            AcquireEvent::Doubts { doubts } => self.record(&CustodyEvent::Doubts { doubts: doubts.clone() }),
            AcquireEvent::SourceChanged { what } => self.record(&CustodyEvent::SourceChanged { what: what.clone() }),
            AcquireEvent::Completing { hashes } => self.record(&CustodyEvent::Hashes { hashes: hashes.clone() }),
            _ => Ok(()),
        };
        (self.events)(event);
        recorded
    }
}

fn append(logs: &Mutex<Vec<CustodyLog>>, event: &CustodyEvent) -> Result<()> {
    logs.lock().iter_mut().try_for_each(|log| log.append(event).map(drop))
}

/// Removes a log that was created for an acquisition that never began. It is locked, so no other process has written to
/// it.
fn discard_if_empty(log: &CustodyLog) {
    let path = log.path();
    if path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::warn!("removing the empty custody log {}: {error}", path.display());
    }
}
