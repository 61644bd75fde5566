//! Turns: operations on the same units follow each other.

use std::ops::Range;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The ranges of units that operations use at the moment.
#[derive(Default)]
pub(super) struct Turns {
    busy: Mutex<Vec<Range<u64>>>,
    freed: Notify,
}

/// The right to use a range of units alone, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    range: Range<u64>,
}

impl Turns {
    /// Waits until no other operation uses a unit of `range`.
    pub async fn take(&self, range: Range<u64>) -> Turn<'_> {
        loop {
            let freed = self.freed.notified();
            {
                let mut busy = self.busy.lock();
                if !busy.iter().any(|other| other.start < range.end && range.start < other.end) {
                    busy.push(range.clone());
                    return Turn { turns: self, range };
                }
            }
            freed.await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut busy = self.turns.busy.lock();
        if let Some(at) = busy.iter().position(|range| *range == self.range) {
            busy.swap_remove(at);
        }
        drop(busy);
        self.turns.freed.notify_waiters();
    }
}
