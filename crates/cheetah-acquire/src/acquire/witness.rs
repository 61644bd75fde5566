//! Who is told what happens: the caller, and the custody logs beside the images.

use std::path::PathBuf;

use cheetah_device::ByteRange;
use cheetah_image::Result;

use super::{Destination, Event};
use crate::custody::{self, CustodyLog, SigningKey, Span};

/// Unreadable ranges, and retries, that go into a custody log one by one. The coverage map has all of them, and the end
/// of the log says how many bytes they are.
const TROUBLES_LOGGED_MAX: u64 = 10_000;

/// Tells everyone.
pub struct Witness<'a> {
    events: &'a mut (dyn FnMut(Event) + Send),
    logs: Vec<CustodyLog>,
    troubles: u64,
}

impl<'a> Witness<'a> {
    /// Tells `events`, so far.
    pub fn new(events: &'a mut (dyn FnMut(Event) + Send)) -> Self {
        Self { events, logs: Vec::new(), troubles: 0 }
    }

    /// And from now on the logs beside the destinations, signed with `key`.
    pub fn keep_logs(&mut self, destinations: &[Destination], key: &SigningKey) -> Result<()> {
        let open = |to: &Destination| CustodyLog::open(&CustodyLog::path_for(&to.path), key.clone());
        self.logs = destinations.iter().map(open).collect::<Result<_>>()?;
        Ok(())
    }

    /// Where the log of the destination with this index is.
    pub fn log_path(&self, index: usize) -> Option<PathBuf> {
        self.logs.get(index).map(|log| log.path().to_owned())
    }

    /// Puts something on record.
    pub fn record(&mut self, event: &custody::Event) -> Result<()> {
        self.logs.iter_mut().try_for_each(|log| log.append(event).map(drop))
    }

    /// Puts something on record for the destination with this index.
    pub fn record_for(&mut self, index: usize, event: &custody::Event) -> Result<()> {
        self.logs.get_mut(index).map_or(Ok(()), |log| log.append(event).map(drop))
    }

    /// Puts on record that it is over. That it failed is what matters then, not that this could not be written.
    pub fn record_end(&mut self, why: &str, error: bool) {
        let what = why.to_owned();
        let failed = if error { self.record(&custody::Event::Error { range: None, what }) } else { Ok(()) };
        if let Err(error) = failed.and_then(|()| self.record(&custody::Event::Stopped { why: why.to_owned() })) {
            tracing::warn!("{error}");
        }
    }

    /// Tells the caller, and puts on record what belongs there.
    pub fn tell(&mut self, event: Event) -> Result<()> {
        let recorded = match &event {
            Event::Retried { offset, len, retries } if self.troubles < TROUBLES_LOGGED_MAX => {
                self.troubles += 1;
                let (range, attempts) =
                    (Span { offset: *offset, len: *len }, u32::try_from(*retries).unwrap_or(u32::MAX));
                self.record(&custody::Event::Retry { range, attempts })
            }
            Event::Unreadable(bad) if self.troubles < TROUBLES_LOGGED_MAX => {
                self.troubles += 1;
                let range = Span::from(ByteRange::new(bad.offset, bad.len));
                self.record(&custody::Event::Unreadable { range, why: bad.why.to_string() })
            }
            Event::Lost { why, .. } => self.record(&custody::Event::Error { range: None, what: why.clone() }),
            Event::Back { source, changed } => {
                let source = custody::source(source)?;
                self.record(&custody::Event::Reconnected { source, changed: changed.clone() })
            }
            Event::Completing { hashes } => self.record(&custody::Event::Hashes { hashes: hashes.clone() }),
            _ => Ok(()),
        };
        (self.events)(event);
        recorded
    }
}
