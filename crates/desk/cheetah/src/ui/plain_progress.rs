//! Progress as plain lines, for a pipe and for a terminal that cannot move its cursor: the first within a second or two, then
//! one every few seconds, also of an operation that stands still.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cheetah_device::Size;

use super::pace::{duration, pace};
use super::stderr;

/// The time before the first line: a short operation has none.
const FIRST: Duration = Duration::from_secs(1);
/// The interval between lines.
const INTERVAL: Duration = Duration::from_secs(3);
/// The interval between lines of an operation of unknown length, which only show that it goes on.
const INTERVAL_UNKNOWN: Duration = Duration::from_secs(10);

/// The lines of one operation, until it is dropped.
pub(super) struct PlainProgress {
    state: Arc<State>,
    /// Ends the lines when dropped.
    _running: Sender<()>,
}

struct State {
    what: String,
    /// 0 if unknown.
    total: u64,
    started: Instant,
    so_far: Mutex<(u64, Option<String>)>,
}

impl PlainProgress {
    /// Starts the lines of an operation over `total` bytes; 0 if its length is unknown.
    pub(super) fn new(what: String, total: u64) -> Self {
        let state = Arc::new(State { what, total, started: Instant::now(), so_far: Mutex::default() });
        let (running, ended) = channel();
        let shown = state.clone();
        let tell = move || {
            let mut pause = FIRST;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                stderr::line(shown.line());
                pause = if shown.total > 0 { INTERVAL } else { INTERVAL_UNKNOWN };
            }
        };
        // Without a thread, there are no lines.
        let _ = std::thread::Builder::new().name("progress".into()).spawn(tell);
        Self { state, _running: running }
    }

    /// Sets the number of bytes done, and the rate, time left and other details; without, they are computed.
    pub(super) fn set(&self, done: u64, details: Option<String>) {
        *self.state.so_far() = (done, details);
    }
}

impl State {
    fn so_far(&self) -> MutexGuard<'_, (u64, Option<String>)> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self) -> String {
        let elapsed = self.started.elapsed();
        if self.total == 0 {
            return format!("{}: {} so far", self.what, duration(elapsed.as_secs()));
        }
        let (done, details) = self.so_far().clone();
        let percent = u128::from(done) * 100 / u128::from(self.total);
        let so_far = format!("{}: {} of {} ({percent}%)", self.what, Size(done), Size(self.total));
        if let Some(details) = details {
            return format!("{so_far}, {details}");
        }
        let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
        let left = self.total.saturating_sub(done);
        format!("{so_far}, {}", pace(rate, (rate >= 1.0).then(|| (left as f64 / rate) as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_operation_and_its_progress() {
        let progress = PlainProgress::new("loading".into(), 4 << 30);
        assert!(progress.state.line().starts_with("loading: 0B of 4GiB (0%), 0 MiB/s"), "{}", progress.state.line());
        progress.set(1 << 30, Some("stalled".into()));
        assert_eq!(progress.state.line(), "loading: 1GiB of 4GiB (25%), stalled");
        progress.set(1 << 30, None);
        assert!(progress.state.line().starts_with("loading: 1GiB of 4GiB (25%), "));
        let unknown = PlainProgress::new("asking the nodes".into(), 0);
        assert_eq!(unknown.state.line(), "asking the nodes: 0 s so far");
    }
}
