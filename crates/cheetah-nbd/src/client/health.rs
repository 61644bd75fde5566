//! Whether the server can be reached, and what to tell those who ask when it cannot.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The state of the server as all connections together see it.
pub(super) struct Health {
    state: Mutex<State>,
    changed: Notify,
    timeout: Duration,
}

#[derive(Clone)]
enum State {
    Up,
    /// No connection since then; being reconnected.
    Down {
        since: Instant,
        why: Arc<str>,
    },
    /// For good.
    Refused(Refused),
}

/// The server answers, but does not let us have what we had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// Because our lease is not ours any more, rather than because the bytes are gone.
    pub fenced: bool,
    pub why: Arc<str>,
}

/// Whether it makes sense to wait for a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outlook {
    /// There should be one now, or soon.
    Wait,
    /// Down for longer than the timeout.
    Lost(Arc<str>),
    /// Down for good.
    Refused(Refused),
}

impl Health {
    pub fn new(timeout: Duration) -> Self {
        Self { state: Mutex::new(State::Up), changed: Notify::new(), timeout }
    }

    /// Notified at every change, and now and then while the server is down.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    pub fn outlook(&self, now: Instant) -> Outlook {
        match &*self.state.lock() {
            State::Down { since, why } if now.duration_since(*since) >= self.timeout => Outlook::Lost(Arc::clone(why)),
            State::Up | State::Down { .. } => Outlook::Wait,
            State::Refused(refused) => Outlook::Refused(refused.clone()),
        }
    }

    /// Why it is down, if it is.
    pub fn why(&self) -> Option<Arc<str>> {
        match &*self.state.lock() {
            State::Up => None,
            State::Down { why, .. } | State::Refused(Refused { why, .. }) => Some(Arc::clone(why)),
        }
    }

    /// A connection is there (again).
    pub fn up(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Down { .. }) {
            *state = State::Up;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The last connection was lost; the server was last heard of at `since`.
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

    /// The server turned us away for good.
    pub fn refused(&self, refused: Refused) {
        *self.state.lock() = State::Refused(refused);
        self.changed.notify_waiters();
    }

    pub fn is_refused(&self) -> bool {
        matches!(*self.state.lock(), State::Refused(_))
    }
}
