//! Prediction of reads near earlier ones, if no file is known there.
//!
//! Some readers stay in a region without following a file or a stream: in the nodes of a tree, a database, the
//! directories of a file system without a survey. The distance at which such readers return is measured, ahead and
//! behind separately. Bytes within that distance are fetched along with a read, if that takes the link less time than
//! the round trips it probably saves.
//!
//! Reads that follow each other without a gap, in either direction, are a stream, which the prefetcher handles.

use std::collections::VecDeque;

use cheetah_device::ByteRange;
use cheetah_device::link_estimate::LinkModel;

/// The maximum number of places remembered.
const PLACES_MAX: usize = 32;
/// The maximum size of a place. The region a stream has passed is not one place.
const PLACE_BYTES_MAX: u64 = 4 << 20;
/// The distances considered, in bytes: the smallest, and the number of them, each twice the last.
const REACH_LEAST: u64 = 64 << 10;
const REACHES: usize = 5;
/// The divisor of the moving averages: each read contributes one part in this many.
const MEMORY: u32 = 16;
/// The fixed-point representation of probability 1.
const ALWAYS: u32 = 1 << 16;

/// Predicts reads near earlier ones; see the module.
#[derive(Default)]
pub(super) struct LocalityPredictor {
    /// The ranges of earlier reads, latest first. No two of them touch.
    places: VecDeque<ByteRange>,
    ahead: DirectionStats,
    behind: DirectionStats,
}

/// For one direction and each reach: the probability that a read is within it of the nearest place.
#[derive(Debug, Default)]
struct DirectionStats {
    within: [u32; REACHES],
}

impl LocalityPredictor {
    /// Notes a read; returns the ranges to fetch ahead of it and behind it, if it has to wait. They may be empty, and
    /// may exceed the device.
    pub(super) fn read(&mut self, range: ByteRange, link: LinkModel) -> [ByteRange; 2] {
        let nothing = [ByteRange::new(range.end(), 0), ByteRange::new(range.offset, 0)];
        let (mut accessed, mut whole) = (false, range);
        self.places.retain(|place| {
            let touches = place.offset <= range.end() && range.offset <= place.end();
            if touches {
                whole = ByteRange::between(whole.offset.min(place.offset), whole.end().max(place.end()));
            }
            accessed |= touches;
            !touches
        });
        if accessed {
            self.places.push_front(if whole.len <= PLACE_BYTES_MAX { whole } else { range });
            return nothing;
        }
        // The distance by which the nearest place must be extended to contain this read.
        let ahead = self.places.iter().filter_map(|place| range.end().checked_sub(place.end())).min();
        let behind = self.places.iter().filter_map(|place| place.offset.checked_sub(range.offset)).min();
        let ahead_is_nearer = ahead.unwrap_or(u64::MAX) <= behind.unwrap_or(u64::MAX);
        self.ahead.note(ahead.filter(|_| ahead_is_nearer));
        self.behind.note(behind.filter(|_| !ahead_is_nearer));
        self.places.push_front(range);
        self.places.truncate(PLACES_MAX);
        let (ahead, behind) = (self.ahead.reach(link), self.behind.reach(link));
        let start = range.offset.saturating_sub(behind);
        [ByteRange::between(range.end(), range.end().saturating_add(ahead)), ByteRange::between(start, range.offset)]
    }
}

impl DirectionStats {
    /// Records a read at a distance from the nearest place; `None` if that place is on the other side.
    fn note(&mut self, distance: Option<u64>) {
        for (within, reach) in self.within.iter_mut().zip(reaches()) {
            let share = if distance.is_some_and(|distance| distance <= reach) { ALWAYS / MEMORY } else { 0 };
            *within = *within - *within / MEMORY + share;
        }
    }

    /// Returns the distance to fetch in this direction: the one whose expected saving exceeds its cost by most. Both
    /// are counted in bytes the link could carry meanwhile.
    fn reach(&self, link: LinkModel) -> u64 {
        let trip = u128::from(link.bandwidth_delay_product());
        let gain = |within: u32, reach: u64| {
            let saved = u64::try_from(trip * u128::from(within) / u128::from(ALWAYS)).unwrap_or(u64::MAX);
            saved.checked_sub(reach).filter(|gain| *gain > 0)
        };
        let worth =
            self.within.iter().zip(reaches()).filter_map(|(within, reach)| Some((gain(*within, reach)?, reach)));
        worth.max_by_key(|(gain, reach)| (*gain, std::cmp::Reverse(*reach))).map_or(0, |(_, reach)| reach)
    }
}

fn reaches() -> impl Iterator<Item = u64> {
    (0..REACHES).map(|doublings| REACH_LEAST << doublings)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const FAR: LinkModel = LinkModel { bandwidth: 125_000_000, round_trip: Duration::from_millis(40) };

    fn read(locality: &mut LocalityPredictor, offset: u64) -> [ByteRange; 2] {
        locality.read(ByteRange::new(offset, 4 * KIB), FAR)
    }

    /// Reads a few records at equal steps in each of several regions.
    fn walk(step: i64, link: LinkModel) -> [ByteRange; 2] {
        let mut locality = LocalityPredictor::default();
        let mut last = None;
        for region in 1..9u64 {
            for nth in 0..6 {
                let at = (region << 30).saturating_add_signed(nth * step);
                last = Some(locality.read(ByteRange::new(at, 4 * KIB), link));
            }
        }
        last.unwrap()
    }

    #[test]
    fn readers_that_return_further_ahead_get_bytes_ahead() {
        let [ahead, behind] = walk(40 * KIB as i64, FAR);
        assert_eq!((ahead.len, behind.len), (64 * KIB, 0));
        let [ahead, behind] = walk(200 * KIB as i64, FAR);
        assert_eq!((ahead.len, behind.len), (256 * KIB, 0));
    }

    #[test]
    fn readers_that_return_further_behind_get_bytes_behind() {
        let [ahead, behind] = walk(-100 * KIB as i64, FAR);
        assert_eq!((ahead.len, behind.len), (0, 128 * KIB));
        let last = (8 << 30) - 500 * KIB;
        assert_eq!(behind.end(), last, "it ends where the read begins");
    }

    #[test]
    fn readers_that_return_on_both_sides_get_bytes_on_both_sides() {
        let mut locality = LocalityPredictor::default();
        let mut state = 7u64;
        let fetched: Vec<_> = (0..400u64)
            .map(|nth| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                read(&mut locality, ((nth / 8) << 30) + (state >> 33) % 64 * 8 * KIB)
            })
            .collect();
        assert!(
            fetched.iter().skip(100).filter(|[ahead, behind]| !ahead.is_empty() && !behind.is_empty()).count() > 150
        );
    }

    #[test]
    fn random_reads_fetch_nothing() {
        let mut locality = LocalityPredictor::default();
        let mut state = 1u64;
        for _ in 0..1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let locality = read(&mut locality, (state >> 20) & !4095);
            assert!(locality.iter().all(|range| range.is_empty()), "{locality:?}");
        }
    }

    #[test]
    fn streams_are_left_to_the_prefetcher() {
        let mut locality = LocalityPredictor::default();
        for nth in 0..1000u64 {
            let ahead = read(&mut locality, MIB + nth * 4 * KIB);
            let back = read(&mut locality, (1 << 40) - nth * 4 * KIB);
            assert!(ahead.iter().chain(&back).all(|range| range.is_empty()));
        }
    }

    #[test]
    fn a_region_that_a_stream_has_passed_is_predicted_like_any_other() {
        let mut locality = LocalityPredictor::default();
        (0..4000u64).for_each(|nth| drop(locality.read(ByteRange::new(nth * 64 * KIB, 64 * KIB), FAR).to_vec()));
        let back: Vec<_> = (0..40u64).map(|nth| read(&mut locality, nth * 40 * KIB)).collect();
        assert!(back.last().is_some_and(|[ahead, _]| !ahead.is_empty()));
    }

    #[test]
    fn places_that_a_read_joins_are_merged() {
        let mut locality = LocalityPredictor::default();
        for offset in [0, 8 * KIB, 4 * KIB] {
            read(&mut locality, offset);
        }
        assert_eq!(locality.places, [ByteRange::new(0, 12 * KIB)]);
    }

    #[test]
    fn bytes_that_take_longer_than_they_save_are_not_fetched() {
        let step = 300 * KIB as i64;
        assert_eq!(walk(step, FAR)[0].len, 512 * KIB);
        let narrow = LinkModel { bandwidth: 12_500_000, ..FAR };
        assert_eq!(walk(step, narrow)[0].len, 0, "it would take as long as the round trip it saves");
        let near = LinkModel { round_trip: Duration::from_micros(200), ..FAR };
        assert_eq!(walk(40 * KIB as i64, near)[0].len, 0);
        assert_eq!(walk(step, LinkModel::default())[0].len, 0, "nothing is known");
    }

    #[test]
    fn readers_that_stop_returning_get_nothing_any_more() {
        let mut locality = LocalityPredictor::default();
        let near: Vec<_> = (0..20u64).map(|nth| read(&mut locality, nth * 40 * KIB)).collect();
        assert!(near.last().is_some_and(|[ahead, _]| !ahead.is_empty()));
        let far: Vec<_> = (1..101u64).map(|nth| read(&mut locality, nth << 32)).collect();
        assert!(far.last().is_some_and(|locality| locality.iter().all(|range| range.is_empty())));
    }

    #[test]
    fn extreme_offsets_and_links_do_not_overflow() {
        let mut locality = LocalityPredictor::default();
        let huge = LinkModel { bandwidth: u64::MAX, round_trip: Duration::MAX };
        for nth in 0..100u64 {
            let _ = locality.read(ByteRange::new(nth * 70 * KIB, 4 * KIB), huge);
            let _ = locality.read(ByteRange::new(u64::MAX - 4 * KIB - nth * 70 * KIB, 4 * KIB), huge);
        }
    }
}
