//! What to send to measure the capacity: longer trains until it is known, or until they would be too long.

use std::time::Duration;

use super::TrainArrivals;
use super::batches::paced_gaps;
use super::capacity::{self, Observations, Unknown, estimate};
use crate::path::{Capacity, Method};

/// Pairs sent.
const PAIRS: usize = 40;
/// Trains with wide gaps, to detect batching.
const PACED: usize = 6;
/// Trains sent back to back of each length.
const TRAINS: usize = 12;
/// The number of packets in the shortest trains: it averages timestamp errors, and fits a router's queue.
const PACKETS_MIN: usize = 32;
/// Packets in the longest trains.
const PACKETS_MAX: usize = 256;
/// Trains that take longer are not followed by longer ones, which would fill queues.
const SPAN_MAX: Duration = Duration::from_millis(50);

/// A train to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This many packets back to back.
    BackToBack(usize),
    /// A train with the gaps of [`paced_gaps`].
    Paced,
}

impl Step {
    /// Returns when each packet is due after the first.
    #[must_use]
    pub fn offsets(self) -> Vec<Duration> {
        match self {
            Self::BackToBack(packets) => vec![Duration::ZERO; packets],
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
}

impl Plan {
    /// Returns what to send next; `None` if the capacity is known, or longer trains would not tell more.
    pub fn next_step(&mut self) -> Option<Step> {
        let nth = self.done;
        self.done += 1;
        if nth < PAIRS {
            return Some(Step::BackToBack(2));
        }
        let Some(train) = nth.checked_sub(PAIRS + PACED) else { return Some(Step::Paced) };
        if train == 0 {
            self.packets = PACKETS_MIN;
        } else if train.is_multiple_of(TRAINS) {
            if !self.needs_longer() {
                return None;
            }
            self.packets *= 2;
        }
        Some(Step::BackToBack(self.packets))
    }

    /// Takes note of what arrived of a train.
    pub fn note(&mut self, step: Step, train: TrainArrivals) {
        match step {
            Step::BackToBack(_) => self.seen.trains.push(train),
            Step::Paced => self.seen.paced.push(train),
        }
    }

    /// Steps done, and steps there are before longer trains are considered.
    #[must_use]
    pub const fn progress(&self) -> (usize, usize) {
        let first = PAIRS + PACED + TRAINS;
        (self.done, if self.done > first { self.done.next_multiple_of(TRAINS) } else { first })
    }

    /// Returns the capacity, measured by `method`.
    ///
    /// # Errors
    ///
    /// If what arrived so far does not determine it.
    pub fn capacity(&self, method: Method) -> Result<Capacity, Unknown> {
        estimate(method, &self.seen)
    }

    fn needs_longer(&self) -> bool {
        // The method makes no difference to the arithmetic.
        self.packets * 2 <= PACKETS_MAX
            && capacity::span_ns(&self.seen.longest()) <= SPAN_MAX.as_nanos() as f64
            && self.capacity(Method::Icmp) == Err(Unknown::TooShort)
    }
}
