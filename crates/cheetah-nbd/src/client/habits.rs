//! How servers of other programs treat reads that fail, learned while they are read.
//!
//! Some servers close the connection instead of answering with an error. qemu-nbd does so if the reply may have several
//! chunks, and not if the read has `NBD_CMD_FLAG_DF`. So after a connection was lost with a read in flight, reads carry that
//! flag, where the server knows it; before that they do not, since a reply in one chunk has no holes.
//!
//! Where that does not help, the read that ends connections is found: a read that was in flight when a connection was lost
//! is repeated alone. If that connection is lost, too, the range is unreadable; the first time, only after a second attempt,
//! since a network may fail twice. Without this, the client would connect again for ever.
//!
//! A client that opens the same source again, because the server cannot prove that it is the same, need not learn this again:
//! habits belong to an address, for as long as the process lives.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use cheetah_device::ByteRange;
use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::uri::{Address, NbdUri};

/// The maximum number of servers whose habits are kept.
const SERVERS_MAX: usize = 256;
/// The maximum number of ranges kept of a server, of each kind.
const RANGES_MAX: usize = 4096;

static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Habits>>>> = LazyLock::new(Mutex::default);
static FOUND: AtomicU64 = AtomicU64::new(0);

/// Returns the number of ranges that this process has found out to end connections. A source that is lost again and again
/// makes progress while this number grows.
pub fn ranges_that_end_connections() -> u64 {
    FOUND.load(Ordering::Relaxed)
}

/// The habits of a server.
#[derive(Default)]
pub(super) struct Habits {
    /// Whether a connection was lost with a read in flight.
    has_dropped: AtomicBool,
    /// Whether it refuses reads with the flag.
    refuses_df: AtomicBool,
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
pub(super) enum Turn<'a> {
    /// The server has done nothing of the kind.
    Free,
    /// Beside others.
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, ()>),
    /// Alone.
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
}

impl Habits {
    /// Returns the habits of the server at an address.
    pub(super) fn of(uri: &NbdUri) -> Arc<Self> {
        if matches!(uri.address, Address::Inbound(_)) {
            return Arc::default();
        }
        let mut known = KNOWN.lock();
        if known.len() >= SERVERS_MAX {
            // Those in use are shared.
            known.retain(|_, habits| Arc::strong_count(habits) > 1);
        }
        known.entry(uri.to_string()).or_default().clone()
    }

    /// Whether reads should be answered in one chunk.
    pub(super) fn wants_df(&self) -> bool {
        self.has_dropped.load(Ordering::Relaxed) && !self.refuses_df.load(Ordering::Relaxed)
    }

    /// Notes that the server cannot answer a read in one chunk.
    pub(super) fn refuses_df(&self) {
        self.refuses_df.store(true, Ordering::Relaxed);
    }

    /// Waits until a read may be made. `None` if it would end the connection.
    pub(super) async fn turn(&self, range: ByteRange) -> Option<Turn<'_>> {
        if !self.has_dropped.load(Ordering::Relaxed) {
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
    pub(super) fn answered(&self, turn: &Turn<'_>, range: ByteRange) {
        if matches!(turn, Turn::Alone(_)) {
            self.ranges.lock().suspected.retain(|(suspected, _)| !range.contains(*suspected));
        }
    }

    /// Notes that the connection was lost with this read in flight. Returns whether the read was the reason.
    pub(super) fn dropped(&self, turn: &Turn<'_>, range: ByteRange) -> bool {
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
        let habits = Habits::default();
        assert!(!habits.wants_df());
        // Two reads are in flight; one of them is fatal.
        for read in [range(0, 100), range(100, 100)] {
            let turn = habits.turn(read).await.unwrap();
            assert!(!habits.dropped(&turn, read));
        }
        assert!(habits.wants_df());
        let turn = habits.turn(range(0, 100)).await.unwrap();
        assert!(matches!(turn, Turn::Alone(_)));
        habits.answered(&turn, range(0, 100));
        drop(turn);
        let found = ranges_that_end_connections();
        for is_found in [false, true] {
            let turn = habits.turn(range(100, 100)).await.unwrap();
            assert_eq!(habits.dropped(&turn, range(100, 100)), is_found);
        }
        assert!(ranges_that_end_connections() > found);
        assert!(habits.turn(range(50, 500)).await.is_none(), "it holds the fatal range");
        assert!(matches!(habits.turn(range(0, 100)).await.unwrap(), Turn::Shared(_)));
        // A part of it may be readable. From now on one attempt is enough.
        let turn = habits.turn(range(100, 50)).await.unwrap();
        assert!(!habits.dropped(&turn, range(100, 50)));
        drop(turn);
        let turn = habits.turn(range(100, 50)).await.unwrap();
        assert!(matches!(turn, Turn::Alone(_)) && habits.dropped(&turn, range(100, 50)));
    }
}
