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
    /// The number of sockets, and of those whose clients are on this machine.
    sockets: usize,
    here: usize,
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

    /// Whether all clients are on this machine.
    pub fn is_here(&self) -> bool {
        let state = self.0.lock();
        state.sockets > 0 && state.here == state.sockets
    }
}

/// One socket's side of a [`Meter`].
#[derive(Debug)]
pub(crate) struct Gauge {
    meter: Arc<Meter>,
    here: bool,
    full: bool,
}

impl Gauge {
    /// `here` says whether the client, or the end of a tunnel to it, is on this machine.
    pub fn new(meter: Arc<Meter>, here: bool) -> Self {
        let mut state = meter.0.lock();
        state.sockets += 1;
        state.here += usize::from(here);
        drop(state);
        Self { meter, here, full: false }
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
        let mut state = self.meter.0.lock();
        state.full -= usize::from(self.full);
        state.here -= usize::from(self.here);
        state.sockets -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clients_are_here_only_while_none_is_elsewhere() {
        let meter = Arc::new(Meter::default());
        assert!(!meter.is_here());
        let here = Gauge::new(Arc::clone(&meter), true);
        assert!(meter.is_here());
        let elsewhere = Gauge::new(Arc::clone(&meter), false);
        assert!(!meter.is_here());
        drop(elsewhere);
        assert!(meter.is_here());
        drop(here);
        assert!(!meter.is_here());
    }
}
