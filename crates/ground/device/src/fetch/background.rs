//! The background work of a layer: a clock, a runtime for its tasks, and their end.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::supervise;

/// Runs the tasks of a layer until it is closed. Reads may come from threads that belong to no runtime, so the handle
/// is kept.
pub(crate) struct Background {
    runtime: Handle,
    started: Instant,
    closed: watch::Sender<bool>,
}

impl Background {
    /// Runs tasks on the runtime this is called in; panics outside one.
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::current(), started: Instant::now(), closed: watch::Sender::new(false) }
    }

    /// Returns the time since the layer was made.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sleeps until [`now`](Self::now) is `at`; for ever if that is `None`.
    pub(crate) async fn sleep_until(&self, at: Option<Duration>) {
        match at {
            Some(at) => tokio::time::sleep_until(self.started + at).await,
            None => std::future::pending().await,
        }
    }

    /// Starts a task. It is not cancelled when the layer is closed.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Runs work that blocks. A panic ends it alone, and is an error of the handle.
    pub(crate) fn spawn_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.runtime.spawn_blocking(supervise::contained(work))
    }

    /// Cancels everything that waits in [`unless_closed`](Self::unless_closed), now and later.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Whether the layer is closed.
    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits for `operation`; `None` if the layer is closed first.
    pub(crate) async fn unless_closed<T>(&self, operation: impl Future<Output = T>) -> Option<T> {
        let mut closed = self.closed.subscribe();
        let closed = pin!(closed.wait_for(|closed| *closed));
        match select(closed, pin!(operation)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }
}
