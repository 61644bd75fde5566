//! Available bandwidth from one-way-delay trends (pathload).
//!
//! After Jain, Dovrolis, *End-to-end available bandwidth: measurement methodology, dynamics, and relation with TCP
//! throughput* (SIGCOMM 2002). Packets sent above the available bandwidth of the tightest link queue before it, each
//! for longer than the one before. A [`Search`] bisects for the rate at which queueing begins.
//!
//! Bursts of cross traffic that are not much shorter than a train lead to an overestimate, because few trains meet one.
//! The error is a third of the capacity with bursts of thirty full-sized packets on half of a link. The range is wide
//! then.

use super::Arrival;
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
    let delay = |arrival: &Arrival| (arrival.came.0.wrapping_sub(arrival.sent.0)) as i64 as f64;
    let delays = arrivals.iter().map(delay).collect::<Vec<_>>();
    let span =
        arrivals.first().zip(arrivals.last()).map_or(0, |(first, last)| last.sent.0.saturating_sub(first.sent.0));
    of_delays(&delays, span as f64)
}

/// Returns the trend of delays of packets sent within `span`. Medians of groups, whose size is the square root of the
/// number of delays, remove outliers.
fn of_delays(delays: &[f64], span: f64) -> Trend {
    let group = ((delays.len() as f64).sqrt() as usize).max(1);
    let median = |group: &[f64]| super::stats::median(&super::stats::sorted(group.iter().copied()));
    let medians = delays.chunks_exact(group).filter_map(median).collect::<Vec<_>>();
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

/// Trains in a fleet; fewer are misled more easily.
pub const FLEET_TRAINS: usize = 12;

/// The share of a fleet's trains that must agree.
const FLEET_AGREES: f64 = 0.7;

/// A binary search for the available bandwidth. Each step evaluates the trends of a fleet of trains at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// The lower bound.
    low: f64,
    /// The grey region, in which the trains of a fleet disagree because the available bandwidth varies.
    grey: Option<(f64, f64)>,
    /// The upper bound.
    high: f64,
    resolution: f64,
}

impl Search {
    /// Starts a search from 0 to `high` bits a second, to within `resolution` bits a second.
    #[must_use]
    pub fn new(high: f64, resolution: f64) -> Self {
        Self { low: 0.0, grey: None, high, resolution: resolution.max(high / 1024.0) }
    }

    /// Returns the rate of the next fleet, in bits a second; `None` when the resolution is reached.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let wide = |from: f64, to: f64| (to - from > self.resolution).then_some(f64::midpoint(from, to));
        match self.grey {
            None => wide(self.low, self.high),
            Some((low, high)) => wide(high, self.high).or_else(|| wide(self.low, low)),
        }
    }

    /// Records the trends of a fleet that was sent at `rate`.
    pub fn note(&mut self, rate: f64, trends: &[Trend]) {
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
    }

    /// Returns the result so far.
    #[must_use]
    pub fn available(&self) -> Available {
        Available {
            bits_per_s: f64::midpoint(self.low, self.high),
            low_bits_per_s: self.low,
            high_bits_per_s: self.high,
        }
    }
}
