//! Clients that have not authenticated yet.
//!
//! They have places of their own, so that however many connect, none of them takes the place of a member. When all are
//! taken, the client that has had its place longest loses it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The places.
const PLACES: usize = 256;

/// The places for clients that have not completed their handshake.
#[derive(Debug, Default)]
pub struct Lobby(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    next: u64,
    guests: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A client's place, until it is dropped.
#[derive(Debug)]
pub struct Guest {
    lobby: Arc<Lobby>,
    number: u64,
    /// Is ready when another client takes the place.
    evicted: oneshot::Receiver<()>,
}

impl Lobby {
    /// Gives a client a place.
    pub fn enter(self: &Arc<Self>) -> Guest {
        let (evict, evicted) = oneshot::channel();
        let mut places = self.0.lock();
        let number = places.next;
        places.next += 1;
        if places.guests.len() == PLACES {
            places.guests.pop_front();
        }
        places.guests.push_back((number, evict));
        Guest { lobby: Arc::clone(self), number, evicted }
    }
}

impl Guest {
    /// Waits until the place is lost.
    pub async fn evicted(&mut self) {
        // Only ever dropped.
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut places = self.lobby.0.lock();
        if let Ok(index) = places.guests.binary_search_by_key(&self.number, |(number, _)| *number) {
            places.guests.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(guest: &mut Guest) -> bool {
        guest.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_guest_loses_its_place_and_those_that_left_make_room() {
        let lobby = Arc::new(Lobby::default());
        let mut guests: Vec<_> = (0..PLACES).map(|_| lobby.enter()).collect();
        drop(guests.swap_remove(7));
        let _one = lobby.enter();
        assert!(!guests.iter_mut().any(is_evicted));
        let _two = lobby.enter();
        let evicted: Vec<_> = guests.iter_mut().map(is_evicted).collect();
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        assert!(evicted[0]);
    }
}
