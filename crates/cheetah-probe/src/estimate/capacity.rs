//! The capacity of the narrowest link, of the dispersion of pairs and trains.
//!
//! After Dovrolis, Ramanathan, Moore, *Packet-dispersion techniques and a capacity-estimation methodology* (IEEE/ACM
//! Transactions on Networking, 2004), as in pathrate. What pairs say has modes: the capacity; less than that, where other
//! traffic came between the two; more than that, where the first was held up after the narrow link. Long trains do not say
//! more than the capacity, and on an idle path just that. So the capacity is the densest mode that is not below what trains say.

use super::dispersion::Sample;
use super::stats::{self, Mode};
use crate::path::{Capacity, Method};

/// Fewest samples anything is said of.
pub const SAMPLES_MIN: usize = 8;

/// Within that share of one another, dispersions are one mode: what timestamps are off by at 1 Gbit/s, and less than the
/// smallest packet that comes between two large ones.
const MODE_WIDTH: f64 = 0.04;
/// A mode with fewer than that share of the densest one's density is chance.
const DENSITY_MIN: f64 = 0.1;
/// Trains that agree with the mode to within that share are of an idle path, and more precise than pairs.
const TRAINS_AGREE: f64 = 0.05;
/// Trains that agree with each other to within that share, by their middle half, are of an idle path.
const TRAINS_SPREAD: f64 = 0.03;
/// A link of more than that share of the rate packets were sent at cannot be told from a faster one.
const SENT_SHARE: f64 = 0.85;

/// The capacity, of what pairs and trains say; nothing of fewer than [`SAMPLES_MIN`] pairs.
///
/// `pairs` are best of large packets sent as close together as can be; neighbours in a train are pairs too. Spoiled ones,
/// which did not leave as they were due, must not be among them.
#[must_use]
pub fn estimate(method: Method, pairs: &[Sample], trains: &[Sample]) -> Option<Capacity> {
    let telling = telling(pairs);
    let times = stats::sorted(telling.iter().map(|pair| 1.0 / pair.bits_per_s));
    if times.len() < SAMPLES_MIN {
        return None;
    }
    let train_times = stats::sorted(trains.iter().map(|train| 1.0 / train.bits_per_s));
    let mode = choose(&stats::modes(&times, MODE_WIDTH), stats::median(&train_times))?;
    let refined = refine(&mode, &train_times);
    let sent = stats::sorted(telling.iter().map(|pair| pair.sent_bits_per_s));
    Some(Capacity {
        method,
        bits_per_s: 1.0 / refined,
        low_bits_per_s: 1.0 / mode.high.max(refined),
        high_bits_per_s: 1.0 / mode.low.min(refined),
        confidence: mode.count as f64 / times.len() as f64,
        at_least: 1.0 / refined > SENT_SHARE * stats::median(&sent)?,
        samples: u32::try_from(times.len() + train_times.len()).unwrap_or(u32::MAX),
    })
}

/// The pairs that a link has set further apart: those that came as they were sent tell how they were sent. But where that is
/// so of most, no link did, and those few that came further apart did so by chance.
fn telling(pairs: &[Sample]) -> Vec<Sample> {
    let is_set_apart = |pair: &&Sample| pair.bits_per_s <= SENT_SHARE * pair.sent_bits_per_s;
    let telling = pairs.iter().filter(is_set_apart).copied().collect::<Vec<_>>();
    if telling.len() >= SAMPLES_MIN && telling.len() * 2 >= pairs.len() { telling } else { pairs.to_vec() }
}

/// Of modes of seconds a bit, the densest that is no slower than trains are; if there is none, the densest.
fn choose(modes: &[Mode], train_time: Option<f64>) -> Option<Mode> {
    let densest = |modes: &mut dyn Iterator<Item = Mode>| modes.max_by(|a, b| a.density.total_cmp(&b.density));
    let all = densest(&mut modes.iter().copied())?;
    let slowest = train_time.map_or(f64::INFINITY, |time| time * (1.0 + TRAINS_AGREE));
    let eligible = |mode: &Mode| mode.median <= slowest && mode.density >= DENSITY_MIN * all.density;
    densest(&mut modes.iter().copied().filter(eligible)).or(Some(all))
}

/// On an idle path, what trains say, which is off by a timestamp's error over many packets; else the mode.
fn refine(mode: &Mode, train_times: &[f64]) -> f64 {
    let at = |q| stats::percentile(train_times, q);
    let (Some(low), Some(middle), Some(high)) = (at(0.25), at(0.5), at(0.75)) else { return mode.median };
    let agree = (middle / mode.median - 1.0).abs() <= TRAINS_AGREE && high - low <= TRAINS_SPREAD * middle;
    if agree { middle } else { mode.median }
}
