//! How much memory connections may hold for requests and replies.
//!
//! Without a limit, clients that send large requests and read no replies could make the server hold any amount of
//! memory. With one common limit, a few such clients could hold all of the memory, and no other client would be
//! answered. So the memory has parts:
//!
//! * **An own share** of each connection, [`FREE_BYTES`]: always there. Reads that may be answered in parts need no more.
//! * **The pool**, from which a connection takes free memory, up to half of it. No connection waits for it.
//! * **The reserve**, for requests that cannot be split and do not fit in their connection's own share: writes, and reads
//!   whose reply is simple. They wait for it in turn.
//! * **One place for an oversized request**, of up to 32 MiB, of this kind. They wait for it in turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::proto::PAYLOAD_LEN_MAX;

/// The own share of each connection: enough for a queue of small requests.
pub(super) const FREE_BYTES: usize = 256 * 1024;
/// The reserve.
const RESERVE_BYTES: usize = 8 << 20;
/// A request that needs more is oversized.
const RESERVE_REQUEST_BYTES_MAX: usize = RESERVE_BYTES / 2;
/// The place for an oversized request.
const OVERSIZED_BYTES: usize = PAYLOAD_LEN_MAX as usize;
/// The least pool.
const POOL_BYTES_MIN: usize = 4 << 20;
/// Memory is taken in steps, so that a connection at work rarely touches the shared count.
const STEP_BYTES: usize = 1024 * 1024;

/// The least memory a server works with, in bytes.
pub const MEMORY_BYTES_LEAST: usize = OVERSIZED_BYTES + RESERVE_BYTES + POOL_BYTES_MIN;

/// Enough for a few connections with large requests.
pub const MEMORY_BYTES_USUAL: usize = MEMORY_BYTES_LEAST + (20 << 20);

/// The memory that connections share.
pub(super) struct Memory {
    pool: Arc<Semaphore>,
    pool_bytes: usize,
    reserve: Arc<Semaphore>,
    oversized: Arc<Semaphore>,
}

impl Memory {
    /// Of `bytes_max` in all, or [`MEMORY_BYTES_LEAST`] if that is more.
    pub(super) fn new(bytes_max: usize) -> Self {
        let pool_bytes = bytes_max.clamp(MEMORY_BYTES_LEAST, Semaphore::MAX_PERMITS) - OVERSIZED_BYTES - RESERVE_BYTES;
        Self {
            pool: Arc::new(Semaphore::new(pool_bytes)),
            pool_bytes,
            reserve: Arc::new(Semaphore::new(RESERVE_BYTES)),
            oversized: Arc::new(Semaphore::new(1)),
        }
    }

    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        let free = [&self.pool, &self.reserve, &self.oversized].map(|part| part.available_permits());
        free == [self.pool_bytes, RESERVE_BYTES, 1]
    }
}

type Asking = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// Waiting in turn.
enum Waiting {
    Reserve(Asking),
    Oversized(Asking),
}

/// One connection's share of the memory.
pub(super) struct Allowance {
    memory: Arc<Memory>,
    pool: Option<OwnedSemaphorePermit>,
    reserve: Option<OwnedSemaphorePermit>,
    oversized: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
}

impl Allowance {
    /// The own share, at first.
    pub(super) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, pool: None, reserve: None, oversized: None, waiting: None }
    }

    /// Bytes the connection may hold.
    fn granted(&self) -> usize {
        let oversized = if self.oversized.is_some() { OVERSIZED_BYTES } else { 0 };
        FREE_BYTES + permits(self.pool.as_ref()) + permits(self.reserve.as_ref()) + oversized
    }

    /// Whether the connection may hold `bytes` now, with what the pool has free.
    pub(super) fn try_hold(&mut self, bytes: usize) -> bool {
        let granted = self.granted();
        if bytes <= granted {
            return true;
        }
        let missing = (bytes - granted).next_multiple_of(STEP_BYTES);
        if permits(self.pool.as_ref()) + missing > self.memory.pool_bytes / 2 {
            return false;
        }
        // Not truncated: at most half of the pool's permits, which fit in an u32 or are not granted.
        let Ok(missing) = u32::try_from(missing) else { return false };
        let Ok(more) = Arc::clone(&self.memory.pool).try_acquire_many_owned(missing) else { return false };
        merge(&mut self.pool, more);
        true
    }

    /// Ready once the connection, which holds `held` bytes, may hold `cost` more for a request that cannot be split. A
    /// connection that holds more than its part must first release some.
    pub(super) fn poll_hold(&mut self, held: usize, cost: usize, cx: &mut Context<'_>) -> Poll<()> {
        while !self.try_hold(held + cost) {
            let (memory, granted) = (&self.memory, self.granted());
            if self.waiting.is_none() {
                let missing = held + cost - granted;
                let is_oversized = cost > RESERVE_REQUEST_BYTES_MAX;
                self.waiting = Some(match is_oversized {
                    true if self.oversized.is_none() => {
                        Waiting::Oversized(Box::pin(Arc::clone(&memory.oversized).acquire_owned()))
                    }
                    // The missing bytes are at most the cost of one request, so the conversion does not truncate.
                    false if missing + permits(self.reserve.as_ref()) <= RESERVE_REQUEST_BYTES_MAX => {
                        Waiting::Reserve(Box::pin(Arc::clone(&memory.reserve).acquire_many_owned(missing as u32)))
                    }
                    _ => return Poll::Pending,
                });
            }
            let (part, granted) = match &mut self.waiting {
                Some(Waiting::Reserve(asking)) => (&mut self.reserve, ready!(asking.as_mut().poll(cx))),
                Some(Waiting::Oversized(asking)) => (&mut self.oversized, ready!(asking.as_mut().poll(cx))),
                None => return Poll::Pending,
            };
            // The semaphores are never closed; if they were, to wait for ever is the safe answer.
            let Ok(granted) = granted else { return Poll::Pending };
            merge(part, granted);
            self.waiting = None;
        }
        // The request is withdrawn; otherwise its grant would be lost.
        self.waiting = None;
        Poll::Ready(())
    }

    /// Whether the connection has more than its own share.
    pub(super) fn is_extended(&self) -> bool {
        self.granted() > FREE_BYTES
    }

    /// Returns memory that a connection with `bytes` does not need to the others. True if it gave up its
    /// place in the queue, and has to ask again.
    pub(super) fn give_back(&mut self, bytes: usize) -> bool {
        let before = self.granted();
        if before == FREE_BYTES || bytes >= before {
            return false;
        }
        if before - bytes >= OVERSIZED_BYTES {
            self.oversized = None;
        }
        let extra = self.granted() - bytes.max(FREE_BYTES);
        let extra = give(&mut self.reserve, extra);
        // A connection at work keeps up to two steps more than it needs.
        let kept = if bytes == 0 { 0 } else { extra % STEP_BYTES + STEP_BYTES };
        give(&mut self.pool, extra.saturating_sub(kept));
        self.granted() < before && self.waiting.take().is_some()
    }
}

fn permits(part: Option<&OwnedSemaphorePermit>) -> usize {
    part.map_or(0, OwnedSemaphorePermit::num_permits)
}

fn merge(part: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match part {
        Some(permits) => permits.merge(more),
        none => *none = Some(more),
    }
}

/// Gives back up to `extra` permits, and returns how many more are to be given back.
fn give(part: &mut Option<OwnedSemaphorePermit>, extra: usize) -> usize {
    let given = permits(part.as_ref()).min(extra);
    if let Some(permits) = part
        && given > 0
    {
        drop(permits.split(given));
    }
    extra - given
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const MIB: usize = 1 << 20;

    fn memory(pool: usize) -> Arc<Memory> {
        Arc::new(Memory::new(OVERSIZED_BYTES + RESERVE_BYTES + pool))
    }

    #[test]
    fn no_connection_gets_more_than_half_of_the_pool() {
        let memory = memory(8 * MIB);
        let mut connections: Vec<_> = (0..3).map(|_| Allowance::new(Arc::clone(&memory))).collect();
        for greedy in &mut connections[..2] {
            assert!(greedy.try_hold(4 * MIB + FREE_BYTES) && !greedy.try_hold(4 * MIB + FREE_BYTES + 1));
        }
        assert!(connections[2].try_hold(FREE_BYTES), "the own share is always there");
        assert!(!connections[2].try_hold(FREE_BYTES + 1));
        assert!(!connections[0].give_back(0));
        assert!(connections[2].try_hold(2 * MIB));
        for connection in &mut connections {
            connection.give_back(0);
        }
        assert!(memory.is_free());
    }

    #[test]
    fn a_request_that_cannot_be_split_gets_the_reserve_when_the_pool_is_taken() {
        let (memory, mut cx) = (memory(8 * MIB), Context::from_waker(Waker::noop()));
        let mut others: Vec<_> = (0..2).map(|_| Allowance::new(Arc::clone(&memory))).collect();
        others.iter_mut().for_each(|greedy| assert!(greedy.try_hold(4 * MIB)));
        let mut writers: Vec<_> = (0..3).map(|_| Allowance::new(Arc::clone(&memory))).collect();
        assert!(writers[0].poll_hold(0, 4 * MIB, &mut cx).is_ready());
        assert!(writers[1].poll_hold(0, 4 * MIB, &mut cx).is_ready());
        assert!(writers[1].poll_hold(4 * MIB, MIB, &mut cx).is_pending(), "its part of the reserve is used up");
        assert!(writers[2].poll_hold(0, 4 * MIB, &mut cx).is_pending());
        writers[0].give_back(0);
        assert!(writers[2].poll_hold(0, 4 * MIB, &mut cx).is_ready());
    }

    #[test]
    fn oversized_requests_take_turns_and_leave_the_rest_alone() {
        let (memory, mut cx) = (memory(8 * MIB), Context::from_waker(Waker::noop()));
        let [mut first, mut second, mut other] = [(); 3].map(|()| Allowance::new(Arc::clone(&memory)));
        assert!(first.poll_hold(0, OVERSIZED_BYTES, &mut cx).is_ready());
        assert!(second.poll_hold(0, OVERSIZED_BYTES, &mut cx).is_pending());
        assert!(other.poll_hold(0, MIB, &mut cx).is_ready());
        first.give_back(FREE_BYTES);
        assert!(second.poll_hold(0, OVERSIZED_BYTES, &mut cx).is_ready());
        drop((first, second, other));
        assert!(memory.is_free());
    }
}
