//! Bandwidth that is left, of whether delays grow while packets are sent at some rate.
//!
//! After Jain, Dovrolis, *End-to-end available bandwidth: measurement methodology, dynamics, and relation with TCP throughput*
//! (SIGCOMM 2002), as in pathload. Packets sent faster than what is left of the tightest link queue before it, each for longer
//! than the one before. A [`Search`] closes in on the rate at which that begins.
//!
//! Where others send in bursts that are not much shorter than a train, few trains meet one, and more is told than is left: by a
//! third of the capacity, with bursts of thirty full-sized packets on half of a link. The range that is told is wide then.

use super::Arrival;
use crate::path::Available;

/// Whether delays grow along a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trend {
    /// They do: it was sent at more than is left.
    Increasing,
    /// They do not.
    Flat,
    /// Cannot be told.
    Ambiguous,
}

/// Fewest packets of a train that a trend is told of.
pub const PACKETS_MIN: usize = 16;

/// More than that share lost, and the rate was too high, whatever the delays of the others.
const LOSS_MAX: f64 = 0.1;
/// Pairwise comparison test: the share of increases, of chance a half, from which delays grow, and up to which they do not.
const PCT: (f64, f64) = (0.66, 0.54);
/// Pairwise difference test: the overall increase beside all the changes, from which delays grow, and up to which they do not.
const PDT: (f64, f64) = (0.55, 0.45);

/// Delays that grow by less than that share of the time a train takes do not matter: it was sent at next to what is left.
const GROWTH_MIN: f64 = 0.01;
/// Delays that jump up and grow by more than that share of the time a train takes do not do so by chance.
const GROWTH_OF_BURSTS: f64 = 0.03;

/// The trend of a train's delays, of which `packets` were sent and these arrived, in the order they were sent in.
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

/// Of delays of packets sent in the time of `span`, the medians of groups as many as the root of their number, against
/// single ones that stand out.
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
        // Bursts make delays jump up between long descents: what counts is whether more was gained than lost.
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

/// Trains that make a fleet; fewer are misled more easily.
pub const FLEET_TRAINS: usize = 12;

/// Share of a fleet's trains that must agree.
const FLEET_AGREES: f64 = 0.7;

/// Closes in on what is left: trains at the rate it asks for are sent, several of them (a fleet), and their trends told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// More than this is left.
    low: f64,
    /// Between these, the trains of a fleet do not agree, because what is left varies: the grey region.
    grey: Option<(f64, f64)>,
    /// Less than this is left.
    high: f64,
    resolution: f64,
}

impl Search {
    /// Between nothing and `high` bits a second, the capacity or what can be sent at, to within `resolution` bits a second.
    #[must_use]
    pub fn new(high: f64, resolution: f64) -> Self {
        Self { low: 0.0, grey: None, high, resolution: resolution.max(high / 1024.0) }
    }

    /// The rate to send the next fleet at, in bits a second; nothing when it is known well enough.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let wide = |from: f64, to: f64| (to - from > self.resolution).then_some(f64::midpoint(from, to));
        match self.grey {
            None => wide(self.low, self.high),
            Some((low, high)) => wide(high, self.high).or_else(|| wide(self.low, low)),
        }
    }

    /// The trends of a fleet that was sent at `rate`, as it was asked for.
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
        // A fleet that disagrees with those before it: what is left has changed, and the bounds give way to what is newer.
        self.grey = self.grey.filter(|(low, high)| *low >= self.low && *high <= self.high);
    }

    /// What is known.
    #[must_use]
    pub fn available(&self) -> Available {
        Available {
            bits_per_s: f64::midpoint(self.low, self.high),
            low_bits_per_s: self.low,
            high_bits_per_s: self.high,
        }
    }
}
