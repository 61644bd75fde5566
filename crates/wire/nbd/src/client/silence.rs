//! How long the server has been silent while it owes an answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// When the server was last heard from, over any connection, and the requests that wait for a connection.
pub(super) struct Silence {
    started: Instant,
    /// Nanoseconds from `started` to the last byte received.
    heard_ns: AtomicU64,
    /// When each of the requests that wait for a connection was issued. In-flight ones are in the connections' tables.
    waiting: Mutex<Vec<Instant>>,
}

/// A request that waits for a connection, until it is dropped.
pub(super) struct Waiting<'a> {
    silence: &'a Silence,
    issued: Instant,
}

impl Silence {
    pub fn new() -> Self {
        Self { started: Instant::now(), heard_ns: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// Notes that bytes arrived.
    pub fn heard(&self) {
        let heard_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard_ns.store(heard_ns, Ordering::Relaxed);
    }

    /// Notes that a request waits for a connection.
    pub fn wait(&self, issued: Instant) -> Waiting<'_> {
        self.waiting.lock().push(issued);
        Waiting { silence: self, issued }
    }

    /// Time since the later of the last byte received, and the time since when an answer is owed: `owed_since` over a
    /// connection, and otherwise since the oldest request that waits for one was issued.
    pub fn so_far(&self, owed_since: Option<Instant>) -> Option<Duration> {
        let waiting = self.waiting.lock().iter().copied().min();
        let oldest = owed_since.into_iter().chain(waiting).min()?;
        let heard = self.started + Duration::from_nanos(self.heard_ns.load(Ordering::Relaxed));
        Some(oldest.max(heard).elapsed())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.silence.waiting.lock();
        if let Some(index) = waiting.iter().position(|issued| *issued == self.issued) {
            waiting.swap_remove(index);
        }
    }
}
