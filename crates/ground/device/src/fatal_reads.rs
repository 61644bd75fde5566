//! Reads at which a server ends the connection instead of answering with an error, found while it is read.
//!
//! A read that was in flight when a connection was lost is repeated alone. If that connection is lost, too, the range is
//! unreadable; the first time, only after a second attempt, since a network may fail twice. Without this, a client would
//! connect again for ever.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::ByteRange;

/// The maximum number of servers of which something is kept.
const SERVERS_MAX: usize = 256;
/// The maximum number of ranges kept of a server, of each kind.
const RANGES_MAX: usize = 4096;

static FOUND: AtomicU64 = AtomicU64::new(0);

/// Returns the number of ranges that this process has found out to end connections. A source that is lost again and again
/// makes progress while this number grows.
pub fn ranges_that_end_connections() -> u64 {
    FOUND.load(Ordering::Relaxed)
}

/// What is learned of servers, by their addresses, for as long as the process lives: a client that opens the same source
/// again, because the server cannot prove that it is the same, need not learn it again.
pub struct ByAddress<T>(LazyLock<Mutex<HashMap<String, Arc<T>>>>);

impl<T: Default> ByAddress<T> {
    /// Nothing is known of any server.
    pub const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// Returns what is known of the server at an address.
    pub fn of(&self, address: String) -> Arc<T> {
        let mut known = self.0.lock();
        if known.len() >= SERVERS_MAX {
            // What is in use is shared.
            known.retain(|_, one| Arc::strong_count(one) > 1);
        }
        known.entry(address).or_default().clone()
    }
}

impl<T: Default> Default for ByAddress<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The reads that end connections to a server.
#[derive(Default)]
pub struct FatalReads {
    /// Whether a connection was lost with a read in flight.
    has_dropped: AtomicBool,
    ranges: Mutex<Ranges>,
    /// Held exclusively by a read that is suspected, so that it is the only one in flight.
    turn: RwLock<()>,
}

#[derive(Default)]
struct Ranges {
    /// In flight when a connection was lost; with how often it was lost while such a read was the only one.
    suspected: VecDeque<(ByteRange, u32)>,
    /// Reads of these end the connection.
    fatal: VecDeque<ByteRange>,
}

/// The right to make a read.
pub enum Turn<'a> {
    /// The server has done nothing of the kind.
    Free,
    /// Beside others.
    Shared(RwLockReadGuard<'a, ()>),
    /// Alone.
    Alone(RwLockWriteGuard<'a, ()>),
}

impl FatalReads {
    /// Whether a connection was lost with a read in flight.
    pub fn has_dropped(&self) -> bool {
        self.has_dropped.load(Ordering::Relaxed)
    }

    /// Waits until a read may be made. `None` if it would end the connection.
    pub async fn turn(&self, range: ByteRange) -> Option<Turn<'_>> {
        if !self.has_dropped() {
            return Some(Turn::Free);
        }
        let is_suspected = {
            let ranges = self.ranges.lock();
            if ranges.fatal.iter().any(|fatal| range.contains(*fatal)) {
                return None;
            }
            ranges.suspected.iter().any(|(suspected, _)| suspected.intersection(range).is_some())
        };
        Some(match is_suspected {
            true => Turn::Alone(self.turn.write().await),
            false => Turn::Shared(self.turn.read().await),
        })
    }

    /// Notes that a read was answered, with content or an error.
    pub fn answered(&self, turn: &Turn<'_>, range: ByteRange) {
        if matches!(turn, Turn::Alone(_)) {
            self.ranges.lock().suspected.retain(|(suspected, _)| !range.contains(*suspected));
        }
    }

    /// Notes that the connection was lost with this read in flight. Returns whether the read was the reason.
    pub fn dropped(&self, turn: &Turn<'_>, range: ByteRange) -> bool {
        self.has_dropped.store(true, Ordering::Relaxed);
        let mut ranges = self.ranges.lock();
        let alone = u32::from(matches!(turn, Turn::Alone(_)));
        let at = ranges.suspected.iter().position(|(suspected, _)| *suspected == range);
        let times = match at.and_then(|at| ranges.suspected.get_mut(at)) {
            Some((_, times)) => {
                *times += alone;
                *times
            }
            None => {
                ranges.suspected.push_back((range, alone));
                alone
            }
        };
        let enough = if ranges.fatal.is_empty() { 2 } else { 1 };
        if times >= enough {
            ranges.suspected.retain(|(suspected, _)| *suspected != range);
            ranges.fatal.push_back(range);
            FOUND.fetch_add(1, Ordering::Relaxed);
        }
        if ranges.suspected.len() > RANGES_MAX {
            ranges.suspected.pop_front();
        }
        if ranges.fatal.len() > RANGES_MAX {
            ranges.fatal.pop_front();
        }
        times >= enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, len: u64) -> ByteRange {
        ByteRange::new(offset, len)
    }

    #[tokio::test]
    async fn a_read_that_ends_connections_alone_is_found_and_its_neighbours_are_not_blamed() {
        let reads = FatalReads::default();
        assert!(!reads.has_dropped());
        // Two reads are in flight; one of them is fatal.
        for read in [range(0, 100), range(100, 100)] {
            let turn = reads.turn(read).await.unwrap();
            assert!(!reads.dropped(&turn, read));
        }
        assert!(reads.has_dropped());
        let turn = reads.turn(range(0, 100)).await.unwrap();
        assert!(matches!(turn, Turn::Alone(_)));
        reads.answered(&turn, range(0, 100));
        drop(turn);
        let found = ranges_that_end_connections();
        for is_found in [false, true] {
            let turn = reads.turn(range(100, 100)).await.unwrap();
            assert_eq!(reads.dropped(&turn, range(100, 100)), is_found);
        }
        assert!(ranges_that_end_connections() > found);
        assert!(reads.turn(range(50, 500)).await.is_none(), "it holds the fatal range");
        assert!(matches!(reads.turn(range(0, 100)).await.unwrap(), Turn::Shared(_)));
        // A part of it may be readable. From now on one attempt is enough.
        let turn = reads.turn(range(100, 50)).await.unwrap();
        assert!(!reads.dropped(&turn, range(100, 50)));
        drop(turn);
        let turn = reads.turn(range(100, 50)).await.unwrap();
        assert!(matches!(turn, Turn::Alone(_)) && reads.dropped(&turn, range(100, 50)));
    }
}
