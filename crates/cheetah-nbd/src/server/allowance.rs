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
    granted: usize,
    permits: Option<OwnedSemaphorePermit>,
    asking: Option<Asking>,
}

impl Allowance {
    /// Takes from `shared`, whose permits are bytes.
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        Self { shared, granted: FREE_BYTES, permits: None, asking: None }
    }

    /// Ready once the connection may hold `bytes`.
    pub(super) fn poll_hold(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<()> {
        while bytes > self.granted {
            let missing = (bytes - self.granted).next_multiple_of(STEP_BYTES);
            // Saturates far above any semaphore: the request sizes are limited to 32 MiB.
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
        Poll::Ready(())
    }

    /// Gives back what was granted; called when the connection holds next to nothing.
    pub(super) fn release(&mut self) {
        self.permits = None;
        self.asking = None;
        self.granted = FREE_BYTES;
    }

    /// Whether anything beyond the free share is held.
    pub(super) fn is_extended(&self) -> bool {
        self.permits.is_some()
    }
}
