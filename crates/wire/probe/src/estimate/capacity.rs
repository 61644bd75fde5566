//! The capacity of the narrowest link, from the dispersion of pairs and trains sent back to back.
//!
//! After Dovrolis, Ramanathan, Moore, *Packet-dispersion techniques and a capacity-estimation methodology* (IEEE/ACM
//! Transactions on Networking, 2004), as in pathrate. Pairs have several modes: the capacity; less than it, where cross
//! traffic came between the two; more than it, where a later hop pulled them together. The rate at which a long train
//! arrives (its asymptotic dispersion rate) is never above the capacity, and below it by no more than the cross traffic
//! that can arrive while the train is sent. So a mode of the pairs is the capacity only between these two bounds;
//! otherwise the trains decide.
//!
//! A train is long if it takes longer than delays vary by. Shorter trains may arrive in one batch (see [`batches`]), at
//! a rate that is not the path's. The capacity is then unknown.
//!
//! Where packets arrive in batches, pairs have no modes that could tell cross traffic from the link. There, the
//! capacity is known only if trains bound it to within 2 %, and calibration trains confirm the bounds; so it is seldom
//! known while there is cross traffic.
//!
//! A batcher whose interval differs by a few per cent from the time that a packet takes delivers single packets, and is
//! not recognised: pairs and parts of trains show its interval instead of the path's. It moves the ends of whole trains
//! by one interval at most. So if packets are as far apart as the intervals of batchers, only whole trains are used.
//! Cross traffic that arrives while they are sent makes them longer, but only a little.
//!
//! That holds for queues that send packets in the order of their arrival. One that serves flows in turn (`fq_codel`, CAKE)
//! gives trains their share of the link, however late other packets arrive. Pairs that find no other flow there are
//! faster than trains then, so the capacity is unknown. If another flow always waits, so that all pairs have their share
//! as well, this cannot be told from a link of that rate.

use std::time::Duration;

use super::dispersion::{Sample, TRAIN_PACKETS_MIN};
use super::stats::{self, Mode};
use super::{Arrival, TrainArrivals, batches, dispersion};
use crate::path::{Capacity, Method};

/// The fewest such trains.
pub const TRAINS_MIN: usize = 6;

/// The width of a mode: the error of timestamps at 1 Gbit/s, and less than the smallest packet between two large ones.
const MODE_WIDTH: f64 = 0.04;
/// The smallest share of the pairs in a mode that counts.
const MODE_SHARE_MIN: f64 = 1.0 / 3.0;
/// Trains that agree with the mode to within this share are more precise than pairs.
const TRAINS_AGREE: f64 = 0.05;
/// Trains whose middle half agrees to within this share crossed an idle path.
const TRAINS_SPREAD: f64 = 0.03;
/// The error of the rate of a train.
const TRAIN_ERROR: f64 = 0.02;
/// A link above this share of the sending rate cannot be distinguished from a faster one.
const SENT_SHARE: f64 = 0.85;
/// Delays that vary by more than this share of a train's duration may have merged the train into one batch.
const JITTER_SHARE: f64 = 0.5;
/// A train that takes longer is long enough: no batcher is expected to hold packets for that long.
const LONG_NS: f64 = 20e6;
/// Trains as a whole, without their first packets, must arrive at the rate of their halves to within this share. They
/// do not if a batcher delivers single packets at intervals close to the time a packet takes.
const WHOLE_AGREES: f64 = 0.012;
/// Packets that take longer may each be delivered as a batch: batchers hold packets for 50 µs or more.
const SINGLE_BATCH_NS: f64 = 45e3;
/// Cross traffic that arrives while whole trains are sent lengthens them. It is assumed to occupy at most this share of
/// the link.
const LOAD_MAX: f64 = 0.5;
/// Whole trains decide if cross traffic lengthens them by at most this share.
const LOAD_ERROR_MAX: f64 = 0.0155;
/// A pair takes these shares of the time that packets of whole trains take if a queue serves flows in turn and only trains
/// met others: the inverse of the number of flows. Pairs that arrived together are faster still.
const IN_TURN: std::ops::Range<f64> = 0.1..0.75;
/// The share of the pairs above which that is no coincidence: over links with one queue, none of 1,200 pairs took such a
/// time, and behind fair queues between 8 and 22 of 40 did. One of 40 may be a delay at the receiver.
const IN_TURN_SHARE: f64 = 0.03;
/// A batcher lengthens or shortens the median train by at most this share of its interval.
const INTERVAL_SHARE: f64 = 0.5;
/// The slopes of trains, which average a batcher's interval, agree with whole trains to within this share,
const SLOPES_AGREE: f64 = 0.01;
/// and the halves of trains to within this share.
const HALVES_AGREE: f64 = 0.02;
/// The largest error of a capacity measured by trains in batches, as a share of it, by their bounds and the cross
/// traffic that calibration trains do not show.
const BATCHED_ERROR_MAX: f64 = 0.0195;
/// The share of the trains in batches that must agree.
const BOUNDS_AGREE: f64 = 0.75;
/// The share of the calibration trains that must confirm the bounds.
const CALIBRATION_AGREE: f64 = 0.8;
/// The load, as a share of the link, that calibration trains usually cannot distinguish from an idle link.
const LOAD_HIDDEN: f64 = 0.06;

/// The arrivals of trains sent back to back, of paced trains that detect batching, and of calibration trains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observations {
    /// Pairs and trains sent back to back.
    pub trains: Vec<TrainArrivals>,
    /// Trains with the gaps of [`batches::paced_gaps`].
    pub paced: Vec<TrainArrivals>,
    /// Trains of even gaps wider than [`Unknown::Unconfirmed`] has.
    pub calibration: Vec<TrainArrivals>,
}

impl Observations {
    /// Returns the trains of the longest kind.
    #[must_use]
    pub fn longest(&self) -> Vec<TrainArrivals> {
        let packets = self.trains.iter().map(|train| train.packets).max().unwrap_or_default().max(TRAIN_PACKETS_MIN);
        self.trains.iter().filter(|train| train.packets == packets).cloned().collect()
    }
}

/// The reason the capacity is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Too few trains arrived whole.
    #[error("too few trains arrived whole")]
    TooFew,
    /// The trains are too short for the delays; longer ones may suffice.
    #[error(
        "packets arrive in batches, or their delays vary by more than a train takes, so their gaps are not the path's"
    )]
    TooShort,
    /// The trains disagree.
    #[error("the trains disagree")]
    Disagree,
    /// Pairs are faster than trains.
    #[error("pairs arrive faster than trains, as from a queue that serves other traffic in turn")]
    InTurn,
    /// The trains in batches agree on this time for a packet; calibration trains, with wider gaps, must confirm it.
    #[error("packets arrive in batches, and no trains at a lower rate confirm the rate of the batches")]
    Unconfirmed(Duration),
    /// Calibration trains do not arrive as they were sent.
    #[error("packets arrive in batches, and other traffic or more batching changes their number")]
    Disturbed,
}

/// Returns the capacity.
///
/// Trains that did not leave on time must not be among the observations.
///
/// # Errors
///
/// If the observations do not determine it.
pub fn estimate(method: Method, seen: &Observations) -> Result<Capacity, Unknown> {
    let long = seen.longest();
    let samples = long.iter().filter_map(dispersion::longest_run).filter_map(dispersion::of_run).collect::<Vec<_>>();
    if samples.len() < TRAINS_MIN {
        return Err(Unknown::TooFew);
    }
    let hold_ns = batches::hold_ns(&seen.paced);
    let found = if hold_ns.is_some() || batches::are_visible(&long) {
        of_batches(&long, &seen.calibration, hold_ns.unwrap_or_default())?
    } else if jitter_ns(&seen.trains) > JITTER_SHARE * span_ns(&long) && span_ns(&long) < LONG_NS {
        return Err(Unknown::TooShort);
    } else {
        of_gaps(&seen.trains, &samples, &long)?
    };
    let sent =
        stats::median(&stats::sorted(samples.iter().map(|train| train.sent_bits_per_s))).ok_or(Unknown::TooFew)?;
    // A train that arrives faster than it was sent shows only that the path is as fast as the sender.
    let [bits_per_s, low, high] = [found.bits_per_s, found.low, found.high].map(|rate| rate.min(sent));
    Ok(Capacity {
        method,
        bits_per_s,
        low_bits_per_s: low,
        high_bits_per_s: high,
        confidence: found.confidence,
        at_least: found.bits_per_s > SENT_SHARE * sent,
        batched: found.batched,
        samples: u32::try_from(found.samples).unwrap_or(u32::MAX),
    })
}

/// A capacity with its range, in bits a second.
struct Estimate {
    bits_per_s: f64,
    low: f64,
    high: f64,
    confidence: f64,
    samples: usize,
    batched: bool,
}

/// The capacity where packets arrive in batches.
fn of_batches(trains: &[TrainArrivals], calibration: &[TrainArrivals], hold_ns: f64) -> Result<Estimate, Unknown> {
    let bounds = batches::bounds(trains, hold_ns).ok_or(Unknown::TooShort)?;
    let middle_ns = f64::midpoint(bounds.low_ns, bounds.high_ns);
    let sent = stats::sorted(trains.iter().filter_map(dispersion::longest_run).map(batches::sent_gap_ns));
    let sent_ns = stats::median(&sent).unwrap_or_default();
    // The error of the bounds, and of the cross traffic that arrives between two packets at this load.
    let error = |load: f64| bounds.high_ns / middle_ns - 1.0 + load * sent_ns / middle_ns;
    let is_most = bounds.trains >= TRAINS_MIN && bounds.trains * 4 >= trains.len() * 3;
    if !is_most || error(LOAD_HIDDEN) > BATCHED_ERROR_MAX {
        return Err(Unknown::TooShort);
    }
    if bounds.agree < BOUNDS_AGREE {
        return Err(Unknown::Disagree);
    }
    let calibrated = batches::calibrate(calibration, hold_ns, &bounds, sent_ns);
    if calibrated.trains < TRAINS_MIN {
        return Err(Unknown::Unconfirmed(Duration::from_nanos(middle_ns as u64)));
    }
    if calibrated.agree < CALIBRATION_AGREE || error(calibrated.load_max) > BATCHED_ERROR_MAX {
        return Err(Unknown::Disturbed);
    }
    let first = trains.iter().find_map(|train| train.arrivals.first()).ok_or(Unknown::TooFew)?;
    let rate = |ns: f64| dispersion::frame_bits(first) * 1e9 / ns;
    Ok(Estimate {
        bits_per_s: rate(middle_ns),
        low: rate(bounds.high_ns),
        high: rate(bounds.low_ns),
        confidence: bounds.agree,
        samples: bounds.trains,
        batched: true,
    })
}

/// The capacity where every packet arrives by itself: a mode of the pairs between the bounds that trains set, or the
/// trains. `trains` are the dispersions of the trains that are `long`.
fn of_gaps(all: &[TrainArrivals], trains: &[Sample], long: &[TrainArrivals]) -> Result<Estimate, Unknown> {
    let slopes = slopes(long);
    let medians = stats::sorted(trains.iter().map(|train| 1.0 / train.bits_per_s));
    let middle = Quartiles::of(&medians).ok_or(Unknown::TooFew)?;
    let whole = Quartiles::of(&wholes(long)).ok_or(Unknown::TooFew)?;
    let sent = stats::sorted(trains.iter().map(|train| 1.0 / train.sent_bits_per_s));
    let sent = stats::median(&sent).ok_or(Unknown::TooFew)?;
    let packet_bits = long.iter().find_map(|train| train.arrivals.first()).map(dispersion::frame_bits);
    let load_error = LOAD_MAX * sent / whole.middle;
    if whole.middle * 1e9 * packet_bits.unwrap_or_default() > SINGLE_BATCH_NS && load_error <= LOAD_ERROR_MAX {
        let packets = long.iter().map(|train| train.packets).max().unwrap_or_default();
        let is_long = load_error + INTERVAL_SHARE / packets as f64 <= BATCHED_ERROR_MAX;
        return match is_long {
            true if is_in_turn(all, whole.middle) => Err(Unknown::InTurn),
            true => of_whole_trains(&whole, &slopes, &middle),
            false => Err(Unknown::TooShort),
        };
    }
    // Cross traffic that arrived while a train was sent delayed it by no longer than that.
    let fastest = (middle.low - sent).max(0.0) * (1.0 - TRAIN_ERROR);
    let pairs = all.iter().flat_map(|train| dispersion::pairs(&train.arrivals)).collect::<Vec<_>>();
    let pair_times = stats::sorted(spread(&pairs).iter().map(|pair| 1.0 / pair.bits_per_s));
    let is_bounded = |mode: &Mode| mode.median >= fastest && mode.median <= middle.middle * (1.0 + TRAINS_AGREE);
    let is_common = |mode: &Mode| mode.count as f64 >= MODE_SHARE_MIN * pair_times.len() as f64;
    let modes = stats::modes(&pair_times, MODE_WIDTH).into_iter().filter(|mode| is_bounded(mode) && is_common(mode));
    let samples = pair_times.len() + trains.len();
    let mode = modes.max_by(|a, b| a.density.total_cmp(&b.density));
    let is_refined = |mode: &Mode| middle.is_narrow() && (middle.middle / mode.median - 1.0).abs() <= TRAINS_AGREE;
    let times = match mode {
        // A path is not slower than its trains: these gaps are a batcher's.
        Some(mode) if mode.median > whole.middle * (1.0 + WHOLE_AGREES) && !is_refined(&mode) => {
            return Err(Unknown::TooShort);
        }
        Some(mode) if !is_refined(&mode) => {
            return Ok(Estimate {
                bits_per_s: 1.0 / mode.median,
                low: 1.0 / mode.high,
                high: 1.0 / mode.low,
                confidence: mode.count as f64 / pair_times.len() as f64,
                samples,
                batched: false,
            });
        }
        // The error of timestamps is spread over a whole train.
        Some(_) => &medians,
        None if Quartiles::of(&slopes).is_some_and(|slopes| slopes.is_narrow()) => &slopes,
        None => &medians,
    };
    let Quartiles { low, middle, high } = Quartiles::of(times).filter(Quartiles::is_narrow).ok_or(Unknown::Disagree)?;
    // Cross traffic slows some of the trains; a batcher's interval makes all slower or faster.
    if whole.low > middle * (1.0 + WHOLE_AGREES) || whole.high < middle * (1.0 - WHOLE_AGREES) {
        return Err(Unknown::TooShort);
    }
    let confidence = stats::share_within(times, middle, TRAINS_AGREE);
    let [bits_per_s, low, high] = [middle, high, low].map(|time| 1.0 / time);
    Ok(Estimate { bits_per_s, low, high, confidence, samples, batched: false })
}

/// The capacity where each packet may be a batch. `slopes` are those of the trains, `halves` those of the median half
/// of each train.
fn of_whole_trains(whole: &Quartiles, slopes: &[f64], halves: &Quartiles) -> Result<Estimate, Unknown> {
    let Quartiles { low, middle, high } = Quartiles::of(slopes).ok_or(Unknown::TooFew)?;
    if !whole.is_narrow() {
        return Err(Unknown::Disagree);
    }
    let agrees = |time: f64, share: f64| (time / whole.middle - 1.0).abs() <= share;
    if !agrees(middle, SLOPES_AGREE) || !agrees(halves.middle, HALVES_AGREE) {
        return Err(Unknown::TooShort);
    }
    let confidence = stats::share_within(slopes, middle, TRAINS_AGREE);
    let [bits_per_s, low, high] = [middle, high, low].map(|time| 1.0 / time);
    Ok(Estimate { bits_per_s, low, high, confidence, samples: slopes.len(), batched: false })
}

/// Returns whether too many pairs are faster than whole trains, which take `whole` seconds a bit.
fn is_in_turn(all: &[TrainArrivals], whole: f64) -> bool {
    let pairs = all.iter().filter(|train| train.packets == 2).flat_map(|train| dispersion::pairs(&train.arrivals));
    let is_faster = |pair: &Sample| IN_TURN.contains(&(1.0 / pair.bits_per_s / whole));
    let (faster, count) =
        pairs.fold((0, 0), |(faster, count), pair| (faster + usize::from(is_faster(&pair)), count + 1));
    faster as f64 > IN_TURN_SHARE * count as f64
}

/// The quartiles of some times.
#[derive(Debug, Clone, Copy)]
struct Quartiles {
    low: f64,
    middle: f64,
    high: f64,
}

impl Quartiles {
    fn of(times: &[f64]) -> Option<Self> {
        let at = |q| stats::percentile(times, q);
        Some(Self { low: at(0.25)?, middle: at(0.5)?, high: at(0.75)? })
    }

    /// Returns whether trains that take these times crossed an idle path.
    fn is_narrow(&self) -> bool {
        self.high - self.low <= TRAINS_SPREAD * self.middle
    }
}

fn slopes(trains: &[TrainArrivals]) -> Vec<f64> {
    let runs = trains.iter().filter_map(dispersion::longest_run);
    stats::sorted(runs.filter_map(dispersion::slope_ns_per_bit).map(|ns| ns / 1e9))
}

/// The seconds a bit that each whole train takes without its first packet, in order.
fn wholes(trains: &[TrainArrivals]) -> Vec<f64> {
    let time = |run: &[Arrival]| {
        let (first, rest) = run.get(1..)?.split_first()?;
        let bits = rest.iter().map(dispersion::frame_bits).sum::<f64>();
        Some(rest.last()?.came.0.saturating_sub(first.came.0) as f64 / 1e9 / bits)
    };
    stats::sorted(trains.iter().filter_map(dispersion::longest_run).filter_map(time))
}

/// Returns the pairs that a link has spread: pairs that arrived as they were sent measure the sender. If most pairs
/// did, no link spread any, and the few that arrived further apart did so by chance.
fn spread(pairs: &[Sample]) -> Vec<Sample> {
    let is_set_apart = |pair: &&Sample| pair.bits_per_s <= SENT_SHARE * pair.sent_bits_per_s;
    let spread = pairs.iter().filter(is_set_apart).copied().collect::<Vec<_>>();
    if spread.len() * 2 >= pairs.len() { spread } else { pairs.to_vec() }
}

/// Returns the interquartile range of the delays of first packets. Each is compared with the one before, so clocks may
/// drift.
fn jitter_ns(trains: &[TrainArrivals]) -> f64 {
    /// The interquartile range of a uniform distribution, divided by the median difference of two samples.
    const HALF: f64 = 1.7;
    let firsts = trains.iter().filter_map(|train| train.arrivals.first());
    let delays = firsts.map(|first| first.came.0.wrapping_sub(first.sent.0)).collect::<Vec<_>>();
    let change = |pair: &[u64]| match pair {
        [a, b] => (b.wrapping_sub(*a) as i64).unsigned_abs() as f64,
        _ => 0.0,
    };
    stats::median(&stats::sorted(delays.windows(2).map(change))).unwrap_or_default() * HALF
}

/// The time from the first packet of a train to its last, as they arrived, in nanoseconds: the median of the trains.
pub(super) fn span_ns(trains: &[TrainArrivals]) -> f64 {
    let span = |run: &[Arrival]| {
        run.last().zip(run.first()).map(|(last, first)| last.came.0.saturating_sub(first.came.0) as f64)
    };
    let spans = trains.iter().filter_map(dispersion::longest_run).filter_map(span);
    stats::median(&stats::sorted(spans)).unwrap_or_default()
}
