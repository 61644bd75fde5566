//! How much memory connections may hold for requests under way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// What every connection may hold without asking: enough for a queue of small requests.
pub(super) const FREE_BYTES: usize = 256 * 1024;

/// Memory is asked for in steps, so that a connection at work rarely touches the shared semaphore.
const STEP_BYTES: usize = 1024 * 1024;

type Asking = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// One connection's share of the server's memory for requests and replies.
///
/// Without it, clients that ask for much and read nothing could make the server hold any amount.
pub(super) struct Allowance {
    shared: Arc<Semaphore>,
    capacity: usize,
    granted: usize,
    permits: Option<OwnedSemaphorePermit>,
    asking: Option<Asking>,
}

impl Allowance {
    /// Takes from `shared`, whose permits are bytes, `capacity` of them when nobody holds any.
    pub(super) fn new(shared: Arc<Semaphore>, capacity: usize) -> Self {
        Self { shared, capacity, granted: FREE_BYTES, permits: None, asking: None }
    }

    /// Ready once the connection may hold `bytes`. Not before some of what it holds has been dealt with, if that is
    /// more than there is for all connections together.
    pub(super) fn poll_hold(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<()> {
        while bytes > self.granted {
            if bytes > FREE_BYTES + self.capacity {
                return Poll::Pending;
            }
            let room = FREE_BYTES + self.capacity - self.granted;
            let missing = (bytes - self.granted).next_multiple_of(STEP_BYTES).min(room);
            // Not truncated: no request is larger than 32 MiB.
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            let asking =
                self.asking.get_or_insert_with(|| Box::pin(Arc::clone(&self.shared).acquire_many_owned(missing)));
            let Ok(more) = std::task::ready!(asking.as_mut().poll(cx)) else {
                // The semaphore is never closed; if it were, waiting for ever is the safe answer.
                return Poll::Pending;
            };
            self.asking = None;
            self.granted += more.num_permits();
            match &mut self.permits {
                Some(permits) => permits.merge(more),
                none => *none = Some(more),
            }
        }
        // Whatever was asked for is not needed any more; left alone it would be granted to nobody in the end.
        self.asking = None;
        Poll::Ready(())
    }

    /// Whether more is held than everybody's share.
    pub(super) fn is_extended(&self) -> bool {
        self.granted > FREE_BYTES
    }

    /// Gives back what a connection that now holds `bytes` has long not needed, so that others get theirs. True if
    /// it gave up its place among those who wait: it has to ask again.
    pub(super) fn give_back(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(FREE_BYTES).next_multiple_of(STEP_BYTES);
        let extra = (self.granted - FREE_BYTES).saturating_sub(wanted);
        if extra < 2 * STEP_BYTES && bytes > 0 || extra == 0 {
            return false;
        }
        if let Some(permits) = &mut self.permits {
            drop(permits.split(extra));
        }
        self.granted -= extra;
        self.asking.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn what_one_gives_back_another_gets() {
        const MIB: usize = 1 << 20;
        let shared = Arc::new(Semaphore::new(8 * MIB));
        let mut cx = Context::from_waker(Waker::noop());
        let mut greedy = Allowance::new(Arc::clone(&shared), 8 * MIB);
        let mut modest = Allowance::new(Arc::clone(&shared), 8 * MIB);
        assert!(greedy.poll_hold(8 * MIB, &mut cx).is_ready());
        assert!(greedy.poll_hold(9 * MIB, &mut cx).is_pending(), "there is no more than 8 MiB for all");
        assert!(modest.poll_hold(FREE_BYTES, &mut cx).is_ready(), "the small share is everybody's");
        assert!(modest.poll_hold(2 * MIB, &mut cx).is_pending());
        greedy.give_back(MIB);
        assert!(modest.poll_hold(2 * MIB, &mut cx).is_ready());
        assert!(greedy.poll_hold(8 * MIB, &mut cx).is_pending());
        assert!(greedy.poll_hold(FREE_BYTES, &mut cx).is_ready(), "it needs less by now");
        greedy.give_back(0);
        modest.give_back(0);
        assert_eq!(shared.available_permits(), 8 * MIB);
    }
}
