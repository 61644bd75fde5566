//! A limit for clients that have not authenticated yet.
//!
//! It is separate from the limit for members, so that unauthenticated clients, however many connect, take no member's
//! connection. At the limit, the connection that has been in its handshake for longest is closed.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The number of slots.
const SLOTS: usize = 256;

/// The slots for clients that have not completed their handshake.
#[derive(Debug, Default)]
pub struct HandshakeSlots(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    next: u64,
    /// The slots in use, oldest first, by number. Dropping a sender evicts the client.
    used: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A client's slot. Dropping it frees the slot.
#[derive(Debug)]
pub struct HandshakeSlot {
    slots: Arc<HandshakeSlots>,
    number: u64,
    /// Ready when another client takes the slot.
    evicted: oneshot::Receiver<()>,
}

impl HandshakeSlots {
    /// Takes a slot; if none is free, that of the client that has had one for longest.
    pub fn take(self: &Arc<Self>) -> HandshakeSlot {
        let (evict, evicted) = oneshot::channel();
        let mut slots = self.0.lock();
        let number = slots.next;
        slots.next += 1;
        if slots.used.len() == SLOTS {
            slots.used.pop_front();
        }
        slots.used.push_back((number, evict));
        HandshakeSlot { slots: Arc::clone(self), number, evicted }
    }
}

impl HandshakeSlot {
    /// Runs a handshake and returns its result; `None` if another client takes the slot first.
    pub async fn run<T>(&mut self, handshake: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = handshake => Some(done),
            // Nothing is ever sent; the sender is dropped.
            _ = &mut self.evicted => None,
        }
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut slots = self.slots.0.lock();
        if let Ok(index) = slots.used.binary_search_by_key(&self.number, |(number, _)| *number) {
            slots.used.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(slot: &mut HandshakeSlot) -> bool {
        slot.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn at_the_limit_the_oldest_slot_is_taken_and_slots_that_were_freed_are_used_first() {
        let slots = Arc::new(HandshakeSlots::default());
        let mut used: Vec<_> = (0..SLOTS).map(|_| slots.take()).collect();
        drop(used.swap_remove(7));
        let _one = slots.take();
        assert!(!used.iter_mut().any(is_evicted));
        let _two = slots.take();
        let evicted: Vec<_> = used.iter_mut().map(is_evicted).collect();
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        assert!(evicted[0]);
    }
}
