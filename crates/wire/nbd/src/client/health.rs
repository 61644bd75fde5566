//! Whether the server can be reached, and the error for callers when it cannot.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The state of the server, from all connections together.
pub(super) struct Health {
    state: Mutex<State>,
    changed: Notify,
    timeout: Duration,
}

#[derive(Clone)]
enum State {
    Up,
    /// No connection since then; reconnecting.
    Down {
        since: Instant,
        why: Arc<str>,
    },
    /// Refused for good.
    Refused(Refused),
}

/// Why the server no longer grants the same size, flags or limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// The lease was lost, rather than the content.
    pub fenced: bool,
    pub why: Arc<str>,
}

/// Whether to wait for a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WaitDecision {
    /// There is one, or one is expected.
    Wait,
    /// Down for longer than the timeout.
    Lost(Arc<str>),
    /// Refused for good.
    Refused(Refused),
}

impl Health {
    pub fn new(timeout: Duration) -> Self {
        Self { state: Mutex::new(State::Up), changed: Notify::new(), timeout }
    }

    /// Notified at each change, and periodically while the server is down.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    pub fn outlook(&self, now: Instant) -> WaitDecision {
        match &*self.state.lock() {
            State::Down { since, why } if now.duration_since(*since) >= self.timeout => {
                WaitDecision::Lost(Arc::clone(why))
            }
            State::Up | State::Down { .. } => WaitDecision::Wait,
            State::Refused(refused) => WaitDecision::Refused(refused.clone()),
        }
    }

    /// Why it is down, if it is.
    pub fn why(&self) -> Option<Arc<str>> {
        match &*self.state.lock() {
            State::Up => None,
            State::Down { why, .. } | State::Refused(Refused { why, .. }) => Some(Arc::clone(why)),
        }
    }

    /// Notes that a connection is up.
    pub fn up(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Down { .. }) {
            *state = State::Up;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that the last connection was lost; the server was last heard from at `since`.
    pub fn down(&self, since: Instant, why: Arc<str>) {
        let mut state = self.state.lock();
        match &mut *state {
            State::Up => *state = State::Down { since, why },
            State::Down { since: known, why: old } => {
                *known = since.min(*known);
                *old = why;
            }
            State::Refused(_) => {}
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that the server refused this client for good.
    pub fn refused(&self, refused: Refused) {
        *self.state.lock() = State::Refused(refused);
        self.changed.notify_waiters();
    }

    pub fn is_refused(&self) -> bool {
        matches!(*self.state.lock(), State::Refused(_))
    }
}
