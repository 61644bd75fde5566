//! The trains sent one way between two ends that cooperate.

use std::time::Duration;

use crate::estimate::batches::paced_gaps;
use crate::schedule::Pattern;

/// Back-to-back trains.
const TRAINS: usize = 8;
/// Packets in each: enough to tell the time that a packet takes from a batcher's interval.
const PACKETS: usize = 64;
/// Trains with wide gaps, to detect batching.
const PACED: usize = 3;
/// Packets in each: one more than [`paced_gaps`].
const PACED_PACKETS: usize = 39;
/// From the end of one to the start of the next: queues before 10 Mbit/s are empty again by then.
const PAUSE: Duration = Duration::from_millis(80);

/// Back-to-back trains, followed by trains with wide gaps, as one pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainPlan {
    packets: usize,
}

impl TrainPlan {
    /// Packets of all trains.
    pub const PACKETS: usize = TRAINS * PACKETS + PACED * PACED_PACKETS;

    /// Plans as many trains as `packets_max` allows.
    #[must_use]
    pub fn new(packets_max: usize) -> Self {
        Self { packets: packets_max.min(Self::PACKETS) }
    }

    /// Returns when the packets are due.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        let train = |gaps: Vec<Duration>| std::iter::once(PAUSE).chain(gaps);
        let trains = (0..TRAINS).flat_map(|_| train(vec![Duration::ZERO; PACKETS - 1]));
        let paced = (0..PACED).flat_map(|_| train(paced_gaps()));
        Pattern::Gaps(trains.chain(paced).take(self.packets).skip(1).collect())
    }

    /// Returns the index of the train that contains a packet.
    #[must_use]
    pub const fn train_of(&self, seq: u32) -> usize {
        let seq = seq as usize;
        match seq.checked_sub(TRAINS * PACKETS) {
            None => seq / PACKETS,
            Some(seq) => TRAINS + seq / PACED_PACKETS,
        }
    }

    /// Returns whether a train has wide gaps, and how many packets it has.
    #[must_use]
    pub const fn kind_of(&self, train: usize) -> (bool, usize) {
        if train < TRAINS { (false, PACKETS) } else { (true, PACED_PACKETS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_separates_every_two_trains_of_the_pattern() {
        assert_eq!(PACED_PACKETS, paced_gaps().len() + 1);
        let plan = TrainPlan::new(usize::MAX);
        let Pattern::Gaps(gaps) = plan.pattern() else { panic!("{plan:?}") };
        assert_eq!(gaps.len() + 1, TrainPlan::PACKETS);
        for (seq, gap) in (1..).zip(gaps) {
            assert_eq!(gap == PAUSE, plan.train_of(seq) != plan.train_of(seq - 1), "{seq}");
        }
        assert_eq!(TrainPlan::new(30).pattern().packets(), 30);
    }
}
