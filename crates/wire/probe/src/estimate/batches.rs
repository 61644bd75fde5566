//! Packets that are delivered in batches: by interrupt coalescing, a poller, or a relay that waits for the processor.
//!
//! After Prasad, Jain, Dovrolis, *Effects of interrupt coalescence on network measurements* (PAM 2004). Inside a batch,
//! packets are as far apart as the batcher releases them, so their gaps say nothing about the path. The ends of batches
//! do: the last packet of a batch arrived at the batcher before its release, and the next packet arrived after it. Any
//! two releases therefore bound the time the path takes for the packets between them, and the bounds of a few trains
//! meet at the capacity.
//!
//! A train that fits into one batch looks exactly like a train over a faster link. [`hold_ns`] tells them apart with
//! packets sent at wider gaps, which a link leaves alone and a batcher pulls together.
//!
//! Two things make bounds agree on a wrong time: cross traffic, which spreads all trains alike if it is steady, and a
//! second batcher, which cuts the batches of the first. Both show in trains sent at a known rate a little below the
//! capacity ([`calibrate`]): an idle path leaves their gaps alone, so the bounds of their gaps must hold.

use std::time::Duration;

use super::{Arrival, TrainArrivals, dispersion, stats};

/// A gap below this share of the train's mean gap lies inside a batch.
const INSIDE: f64 = 0.5;
/// A gap between two batches is at least this share of the time a batch is gathered for,
const BETWEEN: f64 = 0.3;
/// and this share of most such gaps. Timestamps that are late make narrower ones inside a batch.
const BETWEEN_TYPICAL: f64 = 0.6;
/// The fewest batches of a train: with more, the ends of the first and the last matter less.
const BATCHES_MIN: usize = 6;
/// The quantiles, over the trains, of the lower and of the upper bound of the time a packet takes. Cross
/// traffic raises both bounds of some trains, so the upper one must hold for more of them.
const BOUNDS_QUANTILES: (f64, f64) = (0.6, 0.25);
/// The largest deviation of a calibration packet from its due time, in mean gaps.
const CALIBRATION_ERROR_MAX: f64 = 0.5;
/// If at least this share of the gaps lies inside batches, packets arrive in batches. Late timestamps and queues cause
/// fewer.
const INSIDE_MIN: f64 = 0.1;
/// A gap that shrank to less than this share on its way was pulled together.
const SHRUNK: f64 = 0.5;
/// If at least this share of the gaps of one width shrank, a batcher shrank them: bursts of cross traffic shrink fewer.
const SHRUNK_MIN: f64 = 0.6;
/// The widths of the gaps of paced trains, and how many of each are in a train. The widest come first: after narrow
/// ones, a slow link would still have a queue, and wide gaps shrink while it drains.
const PACED_GAPS: [(Duration, usize); 3] =
    [(Duration::from_micros(240), 14), (Duration::from_micros(60), 12), (Duration::from_micros(15), 12)];
/// The relative error of a train's bounds that timestamps cause.
const BOUNDS_ERROR: f64 = 0.002;
/// The fewest gaps of a width that suffice to detect batching.
const GAPS_MIN: usize = 24;

/// Returns the gaps of a paced train, whose arrivals [`hold_ns`] takes.
#[must_use]
pub fn paced_gaps() -> Vec<Duration> {
    PACED_GAPS.iter().flat_map(|(gap, count)| std::iter::repeat_n(*gap, *count)).collect()
}

/// Returns the shortest time for which a batch is gathered, in nanoseconds, if paced trains arrived in batches.
#[must_use]
pub fn hold_ns(paced: &[TrainArrivals]) -> Option<f64> {
    let gaps =
        paced.iter().flat_map(|train| neighbours(&train.arrivals).map(|(a, b)| Gap::new(a, b))).collect::<Vec<_>>();
    let is_batched = |(width, _): (Duration, usize)| {
        // Senders without real-time priority keep wide gaps better than narrow ones.
        let width_ns = width.as_nanos() as f64;
        let near = gaps.iter().filter(|gap| gap.sent_ns > 0.6 * width_ns && gap.sent_ns < 1.8 * width_ns);
        let (shrunk, all) = near.fold((0, 0), |(shrunk, all), gap| (shrunk + usize::from(gap.is_shrunk()), all + 1));
        all >= GAPS_MIN && shrunk as f64 > SHRUNK_MIN * all as f64
    };
    if !PACED_GAPS.into_iter().any(is_batched) {
        return None;
    }
    let longest = paced.iter().filter_map(longest_batch_ns);
    stats::percentile(&stats::sorted(longest), 0.9)
}

/// Whether enough of the gaps inside back-to-back trains are those inside batches.
#[must_use]
pub fn are_visible(trains: &[TrainArrivals]) -> bool {
    let (mut inside, mut all) = (0, 0);
    for run in trains.iter().filter_map(dispersion::longest_run) {
        let limit_ns = INSIDE * mean_gap_ns(run);
        inside += run.windows(2).filter(|pair| gap_ns(pair) < limit_ns).count();
        all += run.len() - 1;
    }
    inside as f64 > INSIDE_MIN * all as f64
}

/// Bounds on the time a packet takes on the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Nanoseconds a packet.
    pub low_ns: f64,
    /// See `low_ns`.
    pub high_ns: f64,
    /// The share of the trains whose own bounds hold for the middle between these.
    pub agree: f64,
    /// The number of trains that bound the time.
    pub trains: usize,
}

/// Returns the time a packet takes on the path, if trains arrived in batches that were gathered for at least `hold_ns`.
#[must_use]
pub fn bounds(trains: &[TrainArrivals], hold_ns: f64) -> Option<Bounds> {
    let runs = trains.iter().filter_map(dispersion::longest_run);
    let bounds = runs.filter_map(|run| of_train(run, hold_ns)).map(widened).collect::<Vec<_>>();
    let low_ns = stats::percentile(&stats::sorted(bounds.iter().map(|(low, _)| *low)), BOUNDS_QUANTILES.0)?;
    let high_ns = stats::percentile(&stats::sorted(bounds.iter().map(|(_, high)| *high)), BOUNDS_QUANTILES.1)?;
    let middle_ns = f64::midpoint(low_ns, high_ns);
    let agree = bounds.iter().filter(|(low, high)| *low <= middle_ns && middle_ns <= *high).count();
    let trains = bounds.len();
    (low_ns <= high_ns).then_some(Bounds { low_ns, high_ns, agree: agree as f64 / trains as f64, trains })
}

/// The result of trains that were sent at known rates below the capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// The share of the trains whose bounds hold for the gap that they were sent with.
    pub agree: f64,
    /// Trains that have bounds and left evenly.
    pub trains: usize,
    /// The largest share of the link, 0 to 1, that cross traffic can occupy without widening the gaps beyond their
    /// bounds.
    pub load_max: f64,
}

/// Compares the bounds of trains of even gaps with the gaps that they were sent with. `found` are the bounds of trains
/// sent back to back, `sent_ns` apart.
#[must_use]
pub fn calibrate(trains: &[TrainArrivals], hold_ns: f64, found: &Bounds, sent_ns: f64) -> Calibration {
    let (mut loads, mut all) = (Vec::new(), 0);
    for run in trains.iter().filter_map(dispersion::longest_run).filter(|run| is_even(run)) {
        let Some((low, high)) = of_train(run, hold_ns).map(widened) else { continue };
        let gap_ns = sent_gap_ns(run);
        all += 1;
        if low <= gap_ns && gap_ns <= high {
            // A packet takes its own time and that of the cross traffic that arrives in one gap, in both kinds of
            // trains.
            loads.push(((high - found.low_ns) / (gap_ns - sent_ns)).clamp(0.0, 1.0));
        }
    }
    let agree = loads.len() as f64 / f64::from(all.max(1));
    // The narrowest gaps bound the load best.
    let load_max = stats::percentile(&stats::sorted(loads), 0.25).unwrap_or(1.0);
    Calibration { agree, trains: all as usize, load_max }
}

/// Returns the mean gap with which packets were sent, in nanoseconds.
#[must_use]
pub fn sent_gap_ns(run: &[Arrival]) -> f64 {
    let span = run.last().zip(run.first()).map_or(0, |(last, first)| last.sent.0.saturating_sub(first.sent.0));
    span as f64 / run.len().saturating_sub(1).max(1) as f64
}

/// Returns whether packets were sent with even gaps.
fn is_even(run: &[Arrival]) -> bool {
    let (gap_ns, start) = (sent_gap_ns(run), run.first().map_or(0, |first| first.sent.0));
    let off = |(place, arrival): (usize, &Arrival)| arrival.sent.0.saturating_sub(start) as f64 - place as f64 * gap_ns;
    run.iter().enumerate().map(off).all(|off| off.abs() <= CALIBRATION_ERROR_MAX * gap_ns)
}

/// Packets that were released together: when the first and the last came, and the place of the last in the train.
#[derive(Debug, Clone, Copy)]
struct Batch {
    first_ns: f64,
    last_ns: f64,
    end: usize,
}

/// Bounds the nanoseconds a packet takes by every two batches of a train.
fn of_train(run: &[Arrival], hold_ns: f64) -> Option<(f64, f64)> {
    let batches = batches(run, hold_ns);
    let span_ns = batches.last()?.last_ns - batches.first()?.first_ns;
    if batches.len() < BATCHES_MIN || span_ns < 2.0 * hold_ns {
        return None;
    }
    let (mut low, mut high) = (0.0_f64, f64::INFINITY);
    for (index, later) in batches.iter().enumerate() {
        for earlier in batches.iter().take(index) {
            let packets = (later.end - earlier.end) as f64;
            // The last batch may have been released long after its last packet came: there was no other packet to show
            // it.
            if index + 1 < batches.len() {
                low = low.max((later.first_ns - earlier.last_ns) / (packets + 1.0));
            }
            if packets > 1.0 {
                high = high.min((later.last_ns - earlier.first_ns) / (packets - 1.0));
            }
        }
    }
    (low > 0.0 && high.is_finite()).then_some((low, high))
}

/// Widens bounds by the error of timestamps. Bounds that contradict each other cover nothing.
fn widened((low, high): (f64, f64)) -> (f64, f64) {
    (low * (1.0 - BOUNDS_ERROR), high * (1.0 + BOUNDS_ERROR))
}

fn batches(run: &[Arrival], hold_ns: f64) -> Vec<Batch> {
    let least_ns = (INSIDE * mean_gap_ns(run)).max(BETWEEN * hold_ns);
    let between = stats::sorted(run.windows(2).map(gap_ns).filter(|gap_ns| *gap_ns >= least_ns));
    let limit_ns = least_ns.max(BETWEEN_TYPICAL * stats::median(&between).unwrap_or_default());
    let start = run.first().map_or(0, |first| first.came.0);
    let at = |arrival: &Arrival| arrival.came.0.saturating_sub(start) as f64;
    let mut batches: Vec<Batch> = Vec::new();
    for (place, arrival) in run.iter().enumerate() {
        let came_ns = at(arrival);
        match batches.last_mut() {
            Some(batch) if came_ns - batch.last_ns < limit_ns => (batch.last_ns, batch.end) = (came_ns, place),
            _ => batches.push(Batch { first_ns: came_ns, last_ns: came_ns, end: place }),
        }
    }
    batches
}

fn gap_ns(pair: &[Arrival]) -> f64 {
    pair.last().zip(pair.first()).map_or(0.0, |(last, first)| last.came.0.saturating_sub(first.came.0) as f64)
}

fn mean_gap_ns(run: &[Arrival]) -> f64 {
    gap_ns(run) / run.len().saturating_sub(1).max(1) as f64
}

/// How far apart two packets left and arrived.
#[derive(Debug, Clone, Copy)]
struct Gap {
    sent_ns: f64,
    came_ns: f64,
}

impl Gap {
    fn new(a: &Arrival, b: &Arrival) -> Self {
        Self { sent_ns: b.sent.0.saturating_sub(a.sent.0) as f64, came_ns: b.came.0.saturating_sub(a.came.0) as f64 }
    }

    fn is_shrunk(self) -> bool {
        self.came_ns < SHRUNK * self.sent_ns
    }
}

/// Every two packets that were sent one after the other and arrived in that order.
fn neighbours(arrivals: &[Arrival]) -> impl Iterator<Item = (&Arrival, &Arrival)> {
    arrivals.windows(2).filter_map(|pair| match pair {
        [a, b] if a.seq.checked_add(1) == Some(b.seq) => Some((a, b)),
        _ => None,
    })
}

/// The time over which the packets of a paced train's longest batch were sent.
fn longest_batch_ns(train: &TrainArrivals) -> Option<f64> {
    let (mut longest, mut this) = (0.0_f64, 0.0);
    for (a, b) in neighbours(&train.arrivals) {
        let gap = Gap::new(a, b);
        this = if gap.is_shrunk() { this + gap.sent_ns } else { 0.0 };
        longest = longest.max(this);
    }
    (longest > 0.0).then_some(longest)
}
