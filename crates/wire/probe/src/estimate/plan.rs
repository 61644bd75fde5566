//! Plans the trains that measure the capacity: longer and longer ones, until it is known or they would be too long. If
//! trains arrive in batches, calibration trains follow.

use std::time::Duration;

use super::batches::paced_gaps;
use super::capacity::{self, Observations, Unknown, estimate};
use super::{TrainArrivals, stats};
use crate::path::{Capacity, Method};
use crate::schedule::Pattern;

/// Pairs sent.
const PAIRS: usize = 40;
/// Trains with wide gaps, to detect batching.
const PACED: usize = 6;
/// Trains sent back to back of each length.
const TRAINS: usize = 12;
/// The number of packets in the shortest trains: it averages timestamp errors, fits most routers' queues, and is enough
/// to tell the time that a packet takes from a batcher's interval that differs by 2 %.
const PACKETS_MIN: usize = 64;
/// That number if pairs arrive further apart than this, which is twice as long as batchers hold packets: such trains
/// take long enough.
const PACKETS_MIN_SLOW: (usize, Duration) = (32, Duration::from_millis(7));
/// Packets in the longest trains.
const PACKETS_MAX: usize = 256;
/// After trains that take longer, no longer ones are sent, because they would fill queues.
const SPAN_MAX: Duration = Duration::from_millis(50);

/// The gaps of calibration trains, as multiples of the time that a packet takes on the path. Every second train has the
/// first gap, which cross traffic disturbs most. Each of the others has a gap wider than the one before by the second
/// number.
const CALIBRATION_GAPS: (f64, f64) = (1.03, 0.1);

/// A train to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This many packets back to back.
    BackToBack(usize),
    /// A train with the gaps of [`paced_gaps`].
    Paced,
    /// A calibration train: this many packets with this gap.
    Calibration(usize, Duration),
}

impl Step {
    /// Returns when each packet is due after the first.
    #[must_use]
    pub fn offsets(self) -> Vec<Duration> {
        match self {
            Self::BackToBack(packets) => vec![Duration::ZERO; packets],
            Self::Calibration(packets, gap) => Pattern::Train { packets, gap }.offsets(),
            Self::Paced => {
                let later = paced_gaps().into_iter().scan(Duration::ZERO, |at, gap| {
                    *at += gap;
                    Some(*at)
                });
                std::iter::once(Duration::ZERO).chain(later).collect()
            }
        }
    }
}

/// The state of a measurement.
#[derive(Debug, Default)]
pub struct Plan {
    seen: Observations,
    done: usize,
    packets: usize,
    /// The time that a packet seems to take on the path, and the number of calibration trains planned for it.
    calibration: Option<(Duration, u32)>,
}

impl Plan {
    /// Returns the next train to send; `None` if the capacity is known, or longer trains would not help.
    pub fn next_step(&mut self) -> Option<Step> {
        let nth = self.done;
        self.done += 1;
        if nth < PAIRS {
            return Some(Step::BackToBack(2));
        }
        if self.calibration.is_some() {
            return self.next_calibration();
        }
        let Some(train) = nth.checked_sub(PAIRS + PACED) else { return Some(Step::Paced) };
        if train == 0 {
            let (packets, gap) = PACKETS_MIN_SLOW;
            self.packets = if self.pair_gap_ns() > gap.as_nanos() as f64 { packets } else { PACKETS_MIN };
        } else if train.is_multiple_of(TRAINS) {
            // The method makes no difference to the arithmetic.
            match self.capacity(Method::Icmp) {
                Err(Unknown::TooShort | Unknown::Disagree) if self.may_lengthen() => self.packets *= 2,
                Err(Unknown::Unconfirmed(time)) => {
                    self.calibration = Some((time, 0));
                    return self.next_calibration();
                }
                _ => return None,
            }
        }
        Some(Step::BackToBack(self.packets))
    }

    fn next_calibration(&mut self) -> Option<Step> {
        let (time, nth) = self.calibration.as_mut().filter(|(_, nth)| (*nth as usize) < TRAINS)?;
        *nth += 1;
        let (narrowest, wider) = CALIBRATION_GAPS;
        let gap = if nth.is_multiple_of(2) { narrowest + wider * f64::from(*nth / 2) } else { narrowest };
        Some(Step::Calibration(self.packets, time.mul_f64(gap)))
    }

    /// Records the packets of a train that arrived.
    pub fn note(&mut self, step: Step, train: TrainArrivals) {
        match step {
            Step::BackToBack(_) => self.seen.trains.push(train),
            Step::Calibration(..) => self.seen.calibration.push(train),
            Step::Paced => self.seen.paced.push(train),
        }
    }

    /// Returns the steps done, and the steps planned before longer trains are considered.
    #[must_use]
    pub const fn progress(&self) -> (usize, usize) {
        let first = PAIRS + PACED + TRAINS;
        (self.done, if self.done > first { self.done.next_multiple_of(TRAINS) } else { first })
    }

    /// Returns the capacity, measured by `method`.
    ///
    /// # Errors
    ///
    /// If the arrivals so far do not determine it.
    pub fn capacity(&self, method: Method) -> Result<Capacity, Unknown> {
        estimate(method, &self.seen)
    }

    /// The median time between the arrivals of a pair.
    fn pair_gap_ns(&self) -> f64 {
        let gap = |train: &TrainArrivals| match train.arrivals[..] {
            [first, second] => Some(second.came.0.saturating_sub(first.came.0) as f64),
            _ => None,
        };
        stats::median(&stats::sorted(self.seen.trains.iter().filter_map(gap))).unwrap_or_default()
    }

    fn may_lengthen(&self) -> bool {
        self.packets * 2 <= PACKETS_MAX && capacity::span_ns(&self.seen.longest()) <= SPAN_MAX.as_nanos() as f64
    }
}
