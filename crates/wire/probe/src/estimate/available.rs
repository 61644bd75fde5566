//! Available bandwidth from one-way-delay trends (pathload).
//!
//! After Jain, Dovrolis, *End-to-end available bandwidth: measurement methodology, dynamics, and relation with TCP
//! throughput* (SIGCOMM 2002). Packets sent above the available bandwidth of the tightest link queue before it, each
//! for longer than the one before. A [`Search`] bisects for the rate at which queueing begins.
//!
//! Bursts of cross traffic that are not much shorter than a train lead to an overestimate, because few trains meet one.
//! So a second estimate must agree: a queue before a link of capacity C, of which A is available, grows by (R − A) / C of
//! the time that a train of rate R takes, as in IGI (Hu, Steenkiste, *Evaluation and characterization of available
//! bandwidth probing techniques*, IEEE JSAC 2003). Its mean over trains is right for bursts as well, but it scatters. The available
//! bandwidth is not known if both differ, or if the second scatters by more than the error that is allowed. With bursts of
//! 32 full-sized packets on a quarter of a simulated link, 6 of 60 results are a third too high nevertheless.

use super::Arrival;
use super::stats::{mean, median, sorted, standard_error};
use crate::path::Available;

/// The trend of the delays along a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trend {
    /// Delays grow: the rate exceeds the available bandwidth.
    Increasing,
    /// Delays do not grow.
    Flat,
    /// Neither test decides.
    Ambiguous,
}

/// The fewest packets a trend is computed from.
pub const PACKETS_MIN: usize = 16;

/// Above this loss the rate was too high, whatever the delays of the other packets.
const LOSS_MAX: f64 = 0.1;
/// Thresholds of the pairwise comparison test, on the share of increases: above the first delays grow, below the second
/// they do not.
const PCT: (f64, f64) = (0.66, 0.54);
/// Thresholds of the pairwise difference test, on the overall increase divided by the sum of all changes.
const PDT: (f64, f64) = (0.55, 0.45);

/// Growth below this share of the train's duration is negligible: the rate is close to the available bandwidth.
const GROWTH_MIN: f64 = 0.01;
/// Growth in jumps above this share of the train's duration is not chance.
const GROWTH_OF_BURSTS: f64 = 0.03;

/// Returns the trend of a train of `packets` packets, from those that arrived, in sending order.
#[must_use]
pub fn trend(arrivals: &[Arrival], packets: usize) -> Trend {
    if (arrivals.len() as f64) < packets as f64 * (1.0 - LOSS_MAX) {
        return Trend::Increasing;
    }
    if arrivals.len() < PACKETS_MIN {
        return Trend::Ambiguous;
    }
    let delays = arrivals.iter().map(delay_ns).collect::<Vec<_>>();
    let span =
        arrivals.first().zip(arrivals.last()).map_or(0, |(first, last)| last.sent.0.saturating_sub(first.sent.0));
    of_delays(&delays, span as f64)
}

fn delay_ns(arrival: &Arrival) -> f64 {
    arrival.came.0.wrapping_sub(arrival.sent.0) as i64 as f64
}

/// Returns by how much delays grow along a train of `packets` packets, as a share of the time that it takes, by least
/// squares. `None` if packets are missing: those that a full queue dropped would have had the longest delays.
#[must_use]
pub fn growth(arrivals: &[Arrival], packets: usize) -> Option<f64> {
    let first = arrivals.first().filter(|_| arrivals.len() == packets && packets >= PACKETS_MIN)?;
    let at = |arrival: &Arrival| arrival.sent.since(first.sent).as_nanos() as f64;
    let middle = mean(&arrivals.iter().map(at).collect::<Vec<_>>())?;
    let squares = arrivals.iter().map(|arrival| (at(arrival) - middle).powi(2)).sum::<f64>();
    // The first delay is subtracted, since the clocks of two machines may be years apart.
    let grown = |arrival: &Arrival| delay_ns(arrival) - delay_ns(first);
    (squares > 0.0)
        .then(|| arrivals.iter().map(|arrival| (at(arrival) - middle) * grown(arrival)).sum::<f64>() / squares)
}

/// Returns the trend of delays of packets sent within `span`. Medians of groups, whose size is the square root of the
/// number of delays, remove outliers.
fn of_delays(delays: &[f64], span: f64) -> Trend {
    let group = ((delays.len() as f64).sqrt() as usize).max(1);
    let middle = |group: &[f64]| median(&sorted(group.iter().copied()));
    let medians = delays.chunks_exact(group).filter_map(middle).collect::<Vec<_>>();
    let steps = medians.windows(2).filter_map(|pair| Some(pair.last()? - pair.first()?)).collect::<Vec<_>>();
    let changes = steps.iter().map(|step| step.abs()).sum::<f64>();
    let growth = steps.iter().sum::<f64>();
    if changes <= 0.0 || growth < GROWTH_MIN * span {
        return Trend::Flat;
    }
    let pct = steps.iter().filter(|step| **step > 0.0).count() as f64 / steps.len() as f64;
    match (judge(pct, PCT), judge(growth / changes, PDT)) {
        (Trend::Increasing, Trend::Flat) => Trend::Ambiguous,
        // Bursts make delays jump up between long descents, so the net growth decides.
        (Trend::Flat, Trend::Increasing) if growth > GROWTH_OF_BURSTS * span => Trend::Increasing,
        (Trend::Flat, Trend::Increasing) => Trend::Flat,
        (Trend::Increasing, _) | (_, Trend::Increasing) => Trend::Increasing,
        (Trend::Flat, _) | (_, Trend::Flat) => Trend::Flat,
        (Trend::Ambiguous, Trend::Ambiguous) => Trend::Ambiguous,
    }
}

fn judge(value: f64, (grows, flat): (f64, f64)) -> Trend {
    if value > grows {
        Trend::Increasing
    } else if value < flat {
        Trend::Flat
    } else {
        Trend::Ambiguous
    }
}

/// Trains in a fleet; fewer are misled more easily, and more take longer.
pub const FLEET_TRAINS: u32 = 8;

/// The share of a fleet's trains that must agree.
const FLEET_AGREES: f64 = 0.7;

/// The largest error of an estimate, as a share of it.
const ERROR_MAX: f64 = 0.15;
/// The resolution of a search, as a share of the rates that it looks at, and of the capacity.
const RESOLUTION: f64 = 0.05;
const RESOLUTION_OF_CAPACITY: f64 = 1.0 / 256.0;
/// Trains at rates above this share of the estimate show whether their delays grow as they should.
const NEAR: f64 = 0.9;

/// The reason the available bandwidth is not known. Rates are in bits a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NotKnown {
    /// Trains tell no more than this range.
    Range {
        /// Trains at this rate met no queue.
        low: f64,
        /// Trains at this rate met a queue that grew.
        high: f64,
    },
    /// Delays begin to grow at this rate, but by more or less than they should beyond it: other traffic comes in bursts.
    Bursts(f64),
}

/// A binary search for the available bandwidth. Each step evaluates a fleet of trains at one rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    capacity: f64,
    /// The lower bound.
    low: f64,
    /// The grey region, in which the trains of a fleet disagree because the available bandwidth varies.
    grey: Option<(f64, f64)>,
    /// The upper bound.
    high: f64,
    /// The rate of each train, and the growth of its delays.
    growths: Vec<(f64, f64)>,
}

impl Search {
    /// Starts a search from 0 to the capacity in bits a second.
    #[must_use]
    pub const fn new(capacity: f64) -> Self {
        Self { capacity, low: 0.0, grey: None, high: capacity, growths: Vec::new() }
    }

    /// Returns the rate of the next fleet, in bits a second; `None` when the resolution is reached.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let resolution = |to: f64| (RESOLUTION * to).max(RESOLUTION_OF_CAPACITY * self.capacity);
        let wide = |from: f64, to: f64| (to - from > resolution(to)).then_some(f64::midpoint(from, to));
        match self.grey {
            None => wide(self.low, self.high),
            Some((low, high)) => wide(high, self.high).or_else(|| wide(self.low, low)),
        }
    }

    /// Records the trends of a fleet that was sent at `rate`, and the growths of the delays of its trains.
    pub fn note(&mut self, rate: f64, trends: &[Trend], growths: &[f64]) {
        let share = |trend| trends.iter().filter(|other| **other == trend).count() as f64 / trends.len().max(1) as f64;
        if share(Trend::Increasing) >= FLEET_AGREES {
            self.high = self.high.min(rate);
        } else if share(Trend::Flat) >= FLEET_AGREES {
            self.low = self.low.max(rate);
        } else {
            let (low, high) = self.grey.unwrap_or((rate, rate));
            self.grey = Some((low.min(rate), high.max(rate)));
        }
        // Newer fleets win over a grey region outside the bounds: the available bandwidth has changed.
        self.grey = self.grey.filter(|(low, high)| *low >= self.low && *high <= self.high);
        self.growths.extend(growths.iter().map(|growth| (rate, *growth)));
    }

    /// Returns the result so far, if the search and the growth of delays agree to within 15 %.
    ///
    /// # Errors
    ///
    /// If the trains do not determine it.
    pub fn available(&self) -> Result<Available, NotKnown> {
        let (low, high) = (self.low, self.high);
        let found = f64::midpoint(low, high);
        if (high - low) / 2.0 > ERROR_MAX * found {
            return Err(NotKnown::Range { low, high });
        }
        let excess = |(rate, growth): &(f64, f64)| growth * self.capacity - (rate - found).max(0.0);
        let near: Vec<f64> = self.growths.iter().filter(|(rate, _)| *rate >= NEAR * found).map(excess).collect();
        let confirmed = mean(&near)
            .zip(standard_error(&near))
            .is_some_and(|(excess, error)| excess.abs() + error <= ERROR_MAX * found);
        if !confirmed {
            return Err(NotKnown::Bursts(found));
        }
        Ok(Available { bits_per_s: found, low_bits_per_s: low, high_bits_per_s: high })
    }
}
