//! The limits of a far end. Unknown clients may call it, so all its work is bounded, for each caller and in total.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api::FarLimits;
use crate::clock::Nanos;

/// The limits of a request.
pub const LIMITS: FarLimits =
    FarLimits { packets_max: 1_000, ip_bytes_max: 1_500, seconds_max: 5, bulk_bytes_max: 1 << 30, bulk_seconds_max: 5 };

/// The most trains expected at once, of all callers. Each holds up to 24 kB of arrivals and a receive buffer.
pub const RECEIVERS_MAX: usize = 8;
/// The most trains expected from one address.
pub const RECEIVERS_PER_CALLER_MAX: usize = 4;
/// How long arrivals are kept for the caller to fetch.
pub const KEPT: Duration = Duration::from_secs(10);
/// A receiver ends after this many packets from other senders: they are a flood.
pub const STRANGERS_MAX: u32 = 100_000;
/// The most bulk transfers at once, in both directions together.
pub const BULKS_MAX: usize = 2;
/// Packets a second sent by trains, on average: after a train, the next one waits until this allows it. Sending one
/// takes up to [`SPIN`](super::train::SPIN) of a processor, so all of them together take no more than a tenth of one.
pub const PACKETS_PER_S_MAX: u32 = 1_000;
/// The longest a caller waits for a permit to have a train sent.
pub const SEND_WAIT_MAX: Duration = Duration::from_secs(2);

/// The resources that all callers share.
#[derive(Debug)]
pub struct CallerLimits {
    bulks: Arc<Semaphore>,
    sending: Arc<Semaphore>,
    free_at: Mutex<Nanos>,
}

impl Default for CallerLimits {
    fn default() -> Self {
        Self {
            bulks: Arc::new(Semaphore::new(BULKS_MAX)),
            // Simultaneous trains would disturb each other.
            sending: Arc::new(Semaphore::new(1)),
            free_at: Mutex::default(),
        }
    }
}

/// The permit to send one train, released on drop; the sending thread holds it until the train was sent.
#[derive(Debug)]
pub struct SendPermit {
    _seat: OwnedSemaphorePermit,
    /// The earliest time to send.
    pub not_before: Nanos,
}

impl CallerLimits {
    /// Returns a permit for a bulk transfer; `None` if all are taken.
    #[must_use]
    pub fn bulk(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.bulks).try_acquire_owned().ok()
    }

    /// Waits for a permit to send a train of `packets`; `None` if that takes too long.
    pub async fn send_permit(&self, packets: u32) -> Option<SendPermit> {
        let seat = tokio::time::timeout(SEND_WAIT_MAX, Arc::clone(&self.sending).acquire_owned()).await.ok()?.ok()?;
        let not_before = self.reserve(Nanos::now(), packets)?;
        Some(SendPermit { _seat: seat, not_before })
    }

    /// Reserves the rate for a train of `packets`, and returns when it may begin; `None` if that is too late.
    fn reserve(&self, now: Nanos, packets: u32) -> Option<Nanos> {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*free_at).max(now);
        if begin.since(now) > SEND_WAIT_MAX {
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
        /// Any second has at most the packets of one train and one second's allowance.
        #[test]
        fn trains_keep_to_the_rate(calls in prop::collection::vec((0u64..500_000_000, 1u32..=LIMITS.packets_max), 1..100)) {
            let caller_limits = CallerLimits::default();
            let (mut now, mut sent) = (Nanos(1), Vec::new());
            for (pause, packets) in calls {
                now = now + Duration::from_nanos(pause);
                if let Some(at) = caller_limits.reserve(now, packets) {
                    prop_assert!(at >= now && at.since(now) <= SEND_WAIT_MAX);
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
