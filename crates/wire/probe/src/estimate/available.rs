//! Available bandwidth from one-way-delay trends (pathload).
//!
//! After Jain, Dovrolis, *End-to-end available bandwidth: measurement methodology, dynamics, and relation with TCP
//! throughput* (SIGCOMM 2002). Packets sent above the available bandwidth of the tightest link queue before it, each
//! for longer than the one before. A [`Search`] bisects for the rate at which queueing begins.
//!
//! Bursts of cross traffic that are not much shorter than a train lead to an overestimate, because few trains meet one.
//! So the search is followed by trains at the capacity C itself. A queue before the link, of which A is available, grows by
//! (R − A) / C of the time that a train of rate R takes, as in IGI (Hu, Steenkiste, *Evaluation and characterization of available
//! bandwidth probing techniques*, IEEE JSAC 2003). At R = C it does not drain between bursts, so that the mean growth of
//! many trains is 1 − A / C for bursts as well. Trains are added until [`ERRORS`] standard errors of that mean are less than the error
//! that is allowed. This is the result. Both estimates must agree; bursts explain that the search found more, but only by as much
//! as trains scatter.

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
/// Trains at the capacity, at least and at most.
pub const FULL_TRAINS: (usize, usize) = (4 * FLEET_TRAINS as usize, 24 * FLEET_TRAINS as usize);
/// The standard errors by which a mean may be off. They are many, because trains are added until the scatter is small enough, which
/// favours a small scatter by chance.
const ERRORS: f64 = 4.0;
/// The share of trains at the capacity that must have arrived whole. Those with losses met the longest queues.
const WHOLE: f64 = 0.9;
/// No more trains are sent if even the largest number would leave an error of more than this multiple of the one that is allowed.
const HOPELESS: f64 = 1.5;

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
    /// Delays begin to grow at this rate, but by more or less than they should beyond it, or too unevenly to tell: other traffic
    /// comes in bursts, or the narrowest link is not the one with the least left.
    Uneven(f64),
}

/// A binary search for the available bandwidth, and trains at the capacity after it. Each step evaluates a fleet of trains at one
/// rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    capacity: f64,
    /// The lower bound.
    low: f64,
    /// The grey region, in which the trains of a fleet disagree because the available bandwidth varies.
    grey: Option<(f64, f64)>,
    /// The upper bound.
    high: f64,
    /// Trains sent at the capacity.
    full: usize,
    /// The growths of the delays of those that arrived whole.
    growths: Vec<f64>,
}

/// What is left of the capacity by the mean growth of delays, in bits a second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Left {
    bits_per_s: f64,
    /// By how much it may be off.
    error: f64,
    /// The standard deviation over trains.
    scatter: f64,
}

impl Left {
    fn is_known(self) -> bool {
        self.error <= ERROR_MAX * self.bits_per_s
    }
}

impl Search {
    /// Starts a search from 0 to the capacity in bits a second.
    #[must_use]
    pub const fn new(capacity: f64) -> Self {
        Self { capacity, low: 0.0, grey: None, high: capacity, full: 0, growths: Vec::new() }
    }

    /// Returns the rate of the next fleet, in bits a second; `None` if no more are needed, or would help.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.middle().or_else(|| self.needs_full_trains().then_some(self.capacity))
    }

    /// Returns the middle of what is still to be searched; `None` when the resolution is reached.
    fn middle(&self) -> Option<f64> {
        let resolution = |to: f64| (RESOLUTION * to).max(RESOLUTION_OF_CAPACITY * self.capacity);
        let wide = |from: f64, to: f64| (to - from > resolution(to)).then_some(f64::midpoint(from, to));
        match self.grey {
            None => wide(self.low, self.high),
            Some((low, high)) => wide(high, self.high).or_else(|| wide(self.low, low)),
        }
    }

    fn needs_full_trains(&self) -> bool {
        let (least, most) = FULL_TRAINS;
        if self.full < least {
            return true;
        }
        self.left().is_some_and(|left| {
            let at_most_trains = left.error * (self.full as f64 / most as f64).sqrt();
            self.full < most && !left.is_known() && at_most_trains <= HOPELESS * ERROR_MAX * left.bits_per_s
        })
    }

    /// Returns what trains at the capacity leave; `None` without enough of them.
    fn left(&self) -> Option<Left> {
        let is_whole = self.full > 0 && self.growths.len() as f64 >= WHOLE * self.full as f64;
        let (growth, error) = mean(&self.growths).zip(standard_error(&self.growths)).filter(|_| is_whole)?;
        Some(Left {
            bits_per_s: self.capacity * (1.0 - growth),
            error: self.capacity * ERRORS * error,
            scatter: self.capacity * error * (self.growths.len() as f64).sqrt(),
        })
    }

    /// Records the trends of a fleet that was sent at `rate`, and the growths of the delays of its trains that arrived whole.
    pub fn note(&mut self, rate: f64, trends: &[Trend], growths: &[f64]) {
        if self.middle().is_none() {
            self.full += trends.len();
            self.growths.extend(growths);
            return;
        }
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

    /// Returns the result so far, if it is known to within 15 %.
    ///
    /// # Errors
    ///
    /// If the trains do not determine it.
    pub fn available(&self) -> Result<Available, NotKnown> {
        let (low, high) = (self.low, self.high);
        let found = f64::midpoint(low, high);
        let range = NotKnown::Range { low, high };
        if self.middle().is_some() {
            return Err(range);
        }
        let left = self.left().ok_or(range)?;
        let (least, most) = (left.bits_per_s - left.error, left.bits_per_s + left.error);
        let off = found - left.bits_per_s;
        let (agree, by_bursts) = (off.abs() <= ERROR_MAX * found, (0.0..=left.scatter).contains(&off));
        if !left.is_known() || !(agree || by_bursts) {
            return Err(NotKnown::Uneven(found));
        }
        let (least, most) = if agree { (least.min(low), most.max(high)) } else { (least, most) };
        Ok(Available { bits_per_s: left.bits_per_s, low_bits_per_s: least, high_bits_per_s: most })
    }
}
