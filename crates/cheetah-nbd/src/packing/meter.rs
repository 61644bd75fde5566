//! What the sockets of all connections say of the link they share.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::link::LinkRate;

/// Watches how sockets take what is sent.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    link: LinkRate,
    /// Sockets that take no more.
    full: usize,
    /// Until when waiting has been accounted for.
    since: Option<Instant>,
    /// When bytes last went.
    went: Option<Instant>,
}

impl Meter {
    /// Bytes a second that the link takes.
    pub fn rate(&self) -> f64 {
        self.0.lock().link.rate()
    }

    /// Whether some socket takes no more.
    pub fn is_full(&self) -> bool {
        self.0.lock().full > 0
    }
}

/// One socket's side of a [`Meter`].
#[derive(Debug)]
pub(crate) struct Gauge {
    meter: Arc<Meter>,
    full: bool,
}

impl Gauge {
    pub fn new(meter: Arc<Meter>) -> Self {
        Self { meter, full: false }
    }

    /// The socket takes no more.
    pub fn blocked(&mut self) {
        if !std::mem::replace(&mut self.full, true) {
            let mut state = self.meter.0.lock();
            if state.full == 0 {
                state.since = Some(Instant::now());
            }
            state.full += 1;
        }
    }

    /// The socket took so many bytes.
    pub fn sent(&mut self, bytes: usize) {
        let mut state = self.meter.0.lock();
        let now = Instant::now();
        let last = state.went.replace(now).unwrap_or(now);
        if state.full == 0 {
            return state.link.flowed(bytes, now.duration_since(last));
        }
        let waited = state.since.replace(now).map_or_else(Default::default, |since| now.duration_since(since));
        state.link.drained(bytes, waited);
        if std::mem::take(&mut self.full) {
            state.full -= 1;
        }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        if self.full {
            self.meter.0.lock().full -= 1;
        }
    }
}
