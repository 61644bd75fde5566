//! What a far end puts up with from whoever calls it. It listens where strangers may call, so nothing it does for one of
//! them is without end, and all of it together is little.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api::FarLimits;
use crate::clock::Nanos;

/// What callers may ask for.
pub const LIMITS: FarLimits =
    FarLimits { packets_max: 1_000, ip_bytes_max: 1_500, seconds_max: 5, bulk_bytes_max: 1 << 30, bulk_seconds_max: 5 };

/// Trains waited for at once, of all callers together. Each holds up to 24 kB of arrivals, and a receive buffer.
pub const RECEIVERS_MAX: usize = 8;
/// Of them, those of one address.
pub const RECEIVERS_PER_CALLER_MAX: usize = 4;
/// How long arrivals are kept for the caller to fetch.
pub const KEPT: Duration = Duration::from_secs(10);
/// A receiver that hears so many packets of others ends: somebody floods its port.
pub const STRANGERS_MAX: u32 = 100_000;
/// Bulk transfers at once, both ways together.
pub const BULKS_MAX: usize = 2;
/// Packets a second sent by trains, on average: after a train, the next one waits until this allows it. Sending one takes up to
/// [`SPIN`](super::train::SPIN) of a processor, so all of them together take no more than a tenth of one.
pub const PACKETS_PER_S_MAX: u32 = 1_000;
/// The longest a caller is kept waiting for its train to have its turn.
pub const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

/// What there is of each kind to be shared by all callers.
#[derive(Debug)]
pub struct Seats {
    bulks: Arc<Semaphore>,
    sending: Arc<Semaphore>,
    free_at: Mutex<Nanos>,
}

impl Default for Seats {
    fn default() -> Self {
        Self {
            bulks: Arc::new(Semaphore::new(BULKS_MAX)),
            // Trains at once would disturb each other.
            sending: Arc::new(Semaphore::new(1)),
            free_at: Mutex::default(),
        }
    }
}

/// The right to send one train. It ends when this is dropped, which is for whoever sends it to do, and not before it was sent.
#[derive(Debug)]
pub struct Turn {
    _seat: OwnedSemaphorePermit,
    /// Not before this.
    pub not_before: Nanos,
}

impl Seats {
    /// A seat for a bulk transfer; none if all are taken.
    #[must_use]
    pub fn bulk(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.bulks).try_acquire_owned().ok()
    }

    /// The turn to send a train of `packets`; none if others have their turn for too long.
    pub async fn turn(&self, packets: u32) -> Option<Turn> {
        let seat = tokio::time::timeout(TURN_WAIT_MAX, Arc::clone(&self.sending).acquire_owned()).await.ok()?.ok()?;
        let not_before = self.reserve(Nanos::now(), packets)?;
        Some(Turn { _seat: seat, not_before })
    }

    /// When a train of `packets` may begin, and is counted; none if that would be too late.
    fn reserve(&self, now: Nanos, packets: u32) -> Option<Nanos> {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*free_at).max(now);
        if begin.since(now) > TURN_WAIT_MAX {
            return None;
        }
        *free_at = begin + Duration::from_secs(1) * packets / PACKETS_PER_S_MAX;
        Some(begin)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However callers come, no second has more packets than a train and a second's worth.
        #[test]
        fn trains_keep_to_the_rate(calls in prop::collection::vec((0u64..500_000_000, 1u32..=LIMITS.packets_max), 1..100)) {
            let seats = Seats::default();
            let (mut now, mut sent) = (Nanos(1), Vec::new());
            for (pause, packets) in calls {
                now = now + Duration::from_nanos(pause);
                if let Some(at) = seats.reserve(now, packets) {
                    prop_assert!(at >= now && at.since(now) <= TURN_WAIT_MAX);
                    sent.push((at, packets));
                }
            }
            for &(from, _) in &sent {
                let until = from + Duration::from_secs(1);
                let within: u32 = sent.iter().filter(|(at, _)| *at >= from && *at < until).map(|(_, n)| n).sum();
                prop_assert!(within <= PACKETS_PER_S_MAX + LIMITS.packets_max, "{}", within);
            }
        }
    }
}
