//! A fetch in flight, and the readers that wait for it.

use std::sync::OnceLock;

use tokio::sync::Notify;

use crate::{ByteRange, Data};

/// A fetch that readers can wait for. It completes once: with the data, or without if it failed. A reader that began to
/// wait before its range was invalidated still gets its data.
#[derive(Debug, Default)]
pub(crate) struct PendingFetch {
    outcome: OnceLock<Option<Data>>,
    notify: Notify,
}

impl PendingFetch {
    /// Completes the fetch, and wakes the readers.
    pub(crate) fn complete(&self, data: Option<Data>) {
        if self.outcome.set(data).is_ok() {
            self.notify.notify_waiters();
        }
    }

    /// Waits for `part` of the data, counted from the start of the fetch; `None` if the fetch failed.
    pub(crate) async fn part(&self, part: ByteRange) -> Option<Data> {
        // Made before looking, so that a completion in between is not missed.
        let notified = self.notify.notified();
        if self.outcome.get().is_none() {
            notified.await;
        }
        self.outcome.get()?.as_ref().map(|data| data.slice(part.offset, part.len))
    }
}
