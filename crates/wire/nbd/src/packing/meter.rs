//! Measuring the link that all connections share, from their sockets.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::link::LinkRate;

/// Records how fast the sockets accept bytes.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    link: LinkRate,
    /// The number of sockets that are full.
    full: usize,
    /// The time up to which waiting is accounted for.
    since: Option<Instant>,
    /// When bytes were last sent.
    went: Option<Instant>,
}

impl Meter {
    /// The link's bandwidth, in bytes a second.
    pub fn rate(&self) -> f64 {
        self.0.lock().link.rate()
    }

    /// Whether a socket is full.
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

    /// Notes that the socket is full.
    pub fn blocked(&mut self) {
        if !std::mem::replace(&mut self.full, true) {
            let mut state = self.meter.0.lock();
            if state.full == 0 {
                state.since = Some(Instant::now());
            }
            state.full += 1;
        }
    }

    /// Notes that the socket accepted this many bytes.
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
