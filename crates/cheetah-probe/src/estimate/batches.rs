//! Packets that are delivered in batches: by interrupt coalescing, a poller, or a relay that waits for the processor.
//!
//! After Prasad, Jain, Dovrolis, *Effects of interrupt coalescence on network measurements* (PAM 2004). Inside a batch, packets are
//! as far apart as the batcher releases them, which says nothing of the path. What does is when batches end: the last packet of a
//! batch arrived at the batcher before its release, and the next packet arrived after it. Each two releases therefore bound the time
//! the path takes for the packets between them, and the bounds of a few trains meet at the capacity.
//!
//! A train that fits into one batch looks exactly like a train over a faster link. [`hold_ns`] tells them apart with packets sent
//! at wider gaps, which a link leaves alone and a batcher pulls together.

use std::time::Duration;

use super::{Arrival, TrainArrivals, dispersion, stats};

/// A gap below this share of the train's mean gap is one inside a batch.
const INSIDE: f64 = 0.5;
/// A gap between two batches is at least this share of the time a batch is gathered for.
const BETWEEN: f64 = 0.3;
/// With this share of such gaps, packets arrive in batches. Late timestamps and queues make fewer.
const INSIDE_MIN: f64 = 0.1;
/// A gap that shrank to less than this share on its way was pulled together.
const SHRUNK: f64 = 0.5;
/// With this share of the gaps of one width pulled together, a batcher did it: bursts of cross traffic do so to fewer.
const SHRUNK_MIN: f64 = 0.6;
/// The widths of the gaps of paced trains, and how many of each are in a train. The widest come first: after narrow ones, a slow
/// link would still have a queue, and wide gaps shrink while it drains.
const PACED_GAPS: [(Duration, usize); 3] =
    [(Duration::from_micros(240), 14), (Duration::from_micros(60), 12), (Duration::from_micros(15), 12)];
/// What timestamps make the bounds of a train off by.
const BOUNDS_ERROR: f64 = 0.002;
/// Fewest gaps of a width to judge by.
const GAPS_MIN: usize = 24;

/// Returns the gaps of a paced train, whose arrivals [`hold_ns`] takes.
#[must_use]
pub fn paced_gaps() -> Vec<Duration> {
    PACED_GAPS.iter().flat_map(|(gap, count)| std::iter::repeat_n(*gap, *count)).collect()
}

/// Returns how long a batch is gathered at least, in nanoseconds, if paced trains arrived in batches.
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
    /// The share of the trains that agree.
    pub agree: f64,
    /// Trains that bound the time at all.
    pub trains: usize,
}

/// Returns the time a packet takes on the path, if trains arrived in batches that were gathered for at least `hold_ns`.
#[must_use]
pub fn bounds(trains: &[TrainArrivals], hold_ns: f64) -> Option<Bounds> {
    let runs = trains.iter().filter_map(dispersion::longest_run);
    let bounds = runs.filter_map(|run| of_train(run, hold_ns)).map(widened).collect::<Vec<_>>();
    let mut ends = bounds.iter().flat_map(|(low, high)| [*low, *high]).collect::<Vec<_>>();
    ends.sort_unstable_by(f64::total_cmp);
    let covering = |ns: f64| bounds.iter().filter(|(low, high)| *low <= ns && ns <= *high).count();
    let stretches = ends.windows(2).filter_map(|ends| match ends {
        [low, high] if high > low => Some((*low, *high, covering(f64::midpoint(*low, *high)))),
        _ => None,
    });
    let stretches = stretches.collect::<Vec<_>>();
    let most = stretches.iter().map(|(.., count)| *count).max()?;
    // One train may be misled, so also count where all the others agree.
    let fewest = most.saturating_sub(1).max(1);
    let likely = || stretches.iter().filter(|(.., count)| *count >= fewest);
    Some(Bounds {
        low_ns: likely().map(|(low, ..)| *low).fold(f64::INFINITY, f64::min),
        high_ns: likely().map(|(_, high, _)| *high).fold(0.0, f64::max),
        agree: most as f64 / bounds.len() as f64,
        trains: bounds.len(),
    })
}

/// Packets that were released together: when the first and the last came, and the place of the last in the train.
#[derive(Debug, Clone, Copy)]
struct Batch {
    first_ns: f64,
    last_ns: f64,
    end: usize,
}

/// Bounds the nanoseconds a packet takes by each two batches of a train.
fn of_train(run: &[Arrival], hold_ns: f64) -> Option<(f64, f64)> {
    let batches = batches(run, hold_ns);
    let span_ns = batches.last()?.last_ns - batches.first()?.first_ns;
    // One whole batch bounds nothing.
    if batches.len() < 3 || span_ns < 2.0 * hold_ns {
        return None;
    }
    let (mut low, mut high) = (0.0_f64, f64::INFINITY);
    for (index, later) in batches.iter().enumerate() {
        for earlier in batches.iter().take(index) {
            let packets = (later.end - earlier.end) as f64;
            // The last batch may have been released long after its last packet came: there was no other packet to show it.
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
    let limit_ns = (INSIDE * mean_gap_ns(run)).max(BETWEEN * hold_ns);
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

/// Each two packets that were sent one after the other and arrived so.
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
