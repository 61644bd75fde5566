//! Limits on sending: packets in any second, and packets and bytes in total.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Nanos;

const SECOND: Duration = Duration::from_secs(1);

/// The limits of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Packets in any second.
    pub packets_per_s_max: u32,
    /// Packets in total.
    pub packets_max: u32,
    /// Bytes of whole frames in total.
    pub bytes_max: u64,
}

impl Default for Limits {
    /// 20 000 packets, which may leave in one second, and 32 MiB: less than a minute of a 5 Mbit/s line.
    fn default() -> Self {
        Self { packets_per_s_max: 20_000, packets_max: 20_000, bytes_max: 32 << 20 }
    }
}

/// The answer to a request to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendDecision {
    /// They may be sent, and are accounted for.
    Now,
    /// They may be sent at that time; nothing is accounted for yet.
    At(Nanos),
    /// Never: the total is used up, or the request exceeds the limit of a second.
    Exhausted,
}

/// The remaining allowance within [`Limits`].
///
/// A bucket that refills steadily would let through up to twice its size within a second; this remembers the last
/// second instead. A train is accounted for as if it left at once.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    packets: u32,
    bytes: u64,
    /// The packets taken in the last second. Each entry has at least one, so there are at most `packets_per_s_max`
    /// entries.
    lately: VecDeque<(Nanos, u32)>,
}

impl Budget {
    /// Creates a full budget.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, packets: 0, bytes: 0, lately: VecDeque::new() }
    }

    /// Returns the number of packets taken so far.
    #[must_use]
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns the number of packets that may still be taken.
    #[must_use]
    pub fn packets_left(&self) -> u32 {
        self.limits.packets_max.saturating_sub(self.packets)
    }

    /// Takes `packets` packets of `bytes` bytes in all, if they may be sent at `now`. Time must not go back.
    pub fn take(&mut self, now: Nanos, packets: u32, bytes: u64) -> SendDecision {
        let bytes = self.bytes.saturating_add(bytes);
        let too_many = packets > self.packets_left().min(self.limits.packets_per_s_max);
        if too_many || bytes > self.limits.bytes_max {
            return SendDecision::Exhausted;
        }
        while self.lately.front().is_some_and(|(at, _)| *at + SECOND <= now) {
            self.lately.pop_front();
        }
        if let Some(at) = self.wait(packets) {
            return SendDecision::At(at);
        }
        (self.packets, self.bytes) = (self.packets.saturating_add(packets), bytes);
        if packets > 0 {
            self.lately.push_back((now, packets));
        }
        SendDecision::Now
    }

    /// Returns when `packets` more are within the limit of a second; `None` if they are already.
    fn wait(&self, packets: u32) -> Option<Nanos> {
        let sum = self.lately.iter().map(|(_, packets)| u64::from(*packets)).sum::<u64>() + u64::from(packets);
        let mut over = sum.checked_sub(u64::from(self.limits.packets_per_s_max)).filter(|over| *over > 0)?;
        for (at, packets) in &self.lately {
            over = over.saturating_sub(u64::from(*packets));
            if over == 0 {
                return Some(*at + SECOND);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at_ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn a_train_may_leave_at_once_and_the_next_one_waits() {
        let mut budget = Budget::new(Limits { packets_per_s_max: 100, packets_max: 1000, bytes_max: 1 << 20 });
        assert_eq!(budget.take(at_ms(5), 60, 1), SendDecision::Now);
        assert_eq!(budget.take(at_ms(10), 40, 1), SendDecision::Now);
        assert_eq!(budget.take(at_ms(11), 60, 1), SendDecision::At(at_ms(1005)));
        assert_eq!(budget.take(at_ms(11), 61, 1), SendDecision::At(at_ms(1010)));
        assert_eq!(budget.take(at_ms(11), 101, 1), SendDecision::Exhausted);
        assert_eq!(budget.take(at_ms(1005), 60, 1), SendDecision::Now);
    }

    #[test]
    fn a_budget_that_is_used_up_stays_used_up() {
        let limits = Limits { packets_per_s_max: 100, packets_max: 150, bytes_max: 1000 };
        let mut budget = Budget::new(limits);
        assert_eq!(budget.take(at_ms(0), 1, 1001), SendDecision::Exhausted);
        assert_eq!(budget.take(at_ms(0), 100, 900), SendDecision::Now);
        assert_eq!((budget.packets(), budget.packets_left()), (100, 50));
        assert_eq!(budget.take(at_ms(9000), 51, 1), SendDecision::Exhausted);
        assert_eq!(budget.take(at_ms(9000), 1, 101), SendDecision::Exhausted);
        assert_eq!(budget.take(at_ms(9000), 50, 100), SendDecision::Now);
        assert_eq!(budget.take(at_ms(90_000), 1, 0), SendDecision::Exhausted);
    }

    proptest! {
        #[test]
        fn no_second_exceeds_the_limit_and_a_sender_that_waits_may_send(
            asks in prop::collection::vec((0..400_u64, 0..120_u32), 1..60), rate in 50..150_u32,
        ) {
            let mut budget = Budget::new(Limits { packets_per_s_max: rate, packets_max: 2000, bytes_max: u64::MAX });
            let (mut now, mut sent) = (0, Vec::new());
            for (later, packets) in asks {
                now += later;
                match budget.take(at_ms(now), packets, 1) {
                    SendDecision::Now => sent.push((now, packets)),
                    SendDecision::At(at) => {
                        prop_assert!(at > at_ms(now));
                        now = at.0 / 1_000_000;
                        prop_assert_eq!(budget.take(at, packets, 1), SendDecision::Now);
                        sent.push((now, packets));
                    }
                    SendDecision::Exhausted => {
                        let total = sent.iter().map(|(_, packets)| packets).sum::<u32>();
                        prop_assert!(packets > rate || total + packets > 2000);
                    }
                }
            }
            for (from, _) in &sent {
                let within = sent.iter().filter(|(at, _)| (*from..from + 1000).contains(at));
                prop_assert!(within.map(|(_, packets)| packets).sum::<u32>() <= rate);
            }
        }
    }
}
