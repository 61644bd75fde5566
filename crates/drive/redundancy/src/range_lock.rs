//! Locks on ranges of groups: changes of a group exclude each other, and reconstruction excludes changes.

use std::ops::Range;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Locks on ranges of numbers. Waiters are served as ranges become free, the oldest first among those that conflict.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    entries: Vec<Entry>,
}

/// A lock that is held or waited for.
#[derive(Debug)]
struct Entry {
    ticket: u64,
    range: Range<u64>,
    exclusive: bool,
}

/// A held lock. Dropping it releases the range.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    lock: &'a RangeLock,
    ticket: u64,
}

impl RangeLock {
    /// Waits until no other lock conflicts with `range`: shared locks do not conflict with each other.
    pub async fn lock(&self, range: Range<u64>, exclusive: bool) -> Guard<'_> {
        let (ticket, is_first) = {
            let mut state = self.state.lock();
            let ticket = state.enter(range, exclusive);
            (ticket, state.is_first(ticket))
        };
        // Leaves the queue if the caller is dropped while it waits.
        let guard = Guard { lock: self, ticket };
        if is_first {
            return guard;
        }
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.state.lock().is_first(ticket) {
                return guard;
            }
            freed.await;
        }
    }
}

impl State {
    fn enter(&mut self, range: Range<u64>, exclusive: bool) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.entries.push(Entry { ticket, range, exclusive });
        ticket
    }

    /// Whether no older entry conflicts. Entries are in order of their tickets.
    fn is_first(&self, ticket: u64) -> bool {
        let Some(own) = self.entries.iter().find(|entry| entry.ticket == ticket) else { return true };
        let conflicts = |other: &&Entry| {
            (own.exclusive || other.exclusive) && own.range.start < other.range.end && other.range.start < own.range.end
        };
        !self.entries.iter().take_while(|entry| entry.ticket != ticket).any(|entry| conflicts(&entry))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        state.entries.retain(|entry| entry.ticket != self.ticket);
        let waiting = !state.entries.is_empty();
        drop(state);
        if waiting {
            self.lock.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn overlapping_changes_wait_and_others_do_not() {
        let lock = RangeLock::default();
        let first = lock.lock(0..4, true).await;
        let mut overlapping = Box::pin(lock.lock(3..5, true));
        assert!((&mut overlapping).now_or_never().is_none());
        assert!(lock.lock(5..9, true).now_or_never().is_some());
        drop(first);
        assert!(overlapping.now_or_never().is_some());
    }

    #[tokio::test]
    async fn shared_locks_wait_for_an_older_exclusive_one_only() {
        let lock = RangeLock::default();
        let reader = lock.lock(0..4, false).await;
        let second = lock.lock(0..4, false).now_or_never().unwrap();
        let mut writer = Box::pin(lock.lock(0..1, true));
        assert!((&mut writer).now_or_never().is_none());
        assert!(lock.lock(0..1, false).now_or_never().is_none(), "a stream of readers must not starve a writer");
        drop((reader, second));
        assert!(writer.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_dropped_waiter_gives_up_its_place() {
        let lock = RangeLock::default();
        let reader = lock.lock(0..4, false).await;
        drop(Box::pin(lock.lock(0..1, true)));
        assert!(Box::pin(lock.lock(0..4, true)).now_or_never().is_none());
        assert!(lock.lock(0..1, false).now_or_never().is_some());
        drop(reader);
    }
}
