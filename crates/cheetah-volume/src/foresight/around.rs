//! What lies around a place that is read: ahead of it, and behind.
//!
//! Where no file is known there is still who reads here and there in one region: the nodes of a tree, a database, the
//! directories of a file system that no survey knows. How near to where they were such readers come back is learnt from
//! where they do, ahead and behind apart. What lies so near is fetched along with what is read, where that takes the link
//! less time than the round trips it is likely to save.
//!
//! Reads that follow each other without a gap are a stream, in either direction, and none of this layer's business.

use std::collections::VecDeque;

use cheetah_device::ByteRange;
use cheetah_device::link_estimate::LinkModel;

/// Places that are remembered.
const PLACES_MAX: usize = 32;
/// A place does not grow beyond this: where a stream has passed, readers come and go as elsewhere.
const PLACE_BYTES_MAX: u64 = 4 << 20;
/// How far around a read is thought of, in bytes: the least, and how often that is doubled.
const REACH_LEAST: u64 = 64 << 10;
const REACHES: usize = 5;
/// Of what is believed, each read changes one part in so many.
const MEMORY: u32 = 16;
/// Certainty.
const ALWAYS: u32 = 1 << 16;

/// See the module's essay.
#[derive(Default)]
pub(super) struct Around {
    /// Where reads have been, the latest first. No two of them touch.
    places: VecDeque<ByteRange>,
    ahead: Side,
    behind: Side,
}

/// One direction: for each reach, how likely a read comes within it of a place in that direction of which none is nearer.
#[derive(Debug, Default)]
struct Side {
    within: [u32; REACHES],
}

impl Around {
    /// Somebody reads `range`; what to fetch around it, ahead and behind, if it has to be waited for. May be empty, and may
    /// go beyond the device.
    pub(super) fn read(&mut self, range: ByteRange, link: LinkModel) -> [ByteRange; 2] {
        let nothing = [ByteRange::new(range.end(), 0), ByteRange::new(range.offset, 0)];
        let (mut touched, mut whole) = (false, range);
        self.places.retain(|place| {
            let touches = place.offset <= range.end() && range.offset <= place.end();
            if touches {
                whole = ByteRange::between(whole.offset.min(place.offset), whole.end().max(place.end()));
            }
            touched |= touches;
            !touches
        });
        if touched {
            self.places.push_front(if whole.len <= PLACE_BYTES_MAX { whole } else { range });
            return nothing;
        }
        // How far a place would have had to be extended for this read to be within.
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

impl Side {
    /// A read came so far from the nearest place; `None` if that was on the other side.
    fn note(&mut self, distance: Option<u64>) {
        for (within, reach) in self.within.iter_mut().zip(reaches()) {
            let share = if distance.is_some_and(|distance| distance <= reach) { ALWAYS / MEMORY } else { 0 };
            *within = *within - *within / MEMORY + share;
        }
    }

    /// How far to fetch in this direction: where what is likely to be saved exceeds the cost by most. Both are counted in
    /// bytes that the link could carry meanwhile.
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

    fn read(around: &mut Around, offset: u64) -> [ByteRange; 2] {
        around.read(ByteRange::new(offset, 4 * KIB), FAR)
    }

    /// Regions far from each other, in each of which somebody goes some steps.
    fn walk(step: i64, link: LinkModel) -> [ByteRange; 2] {
        let mut around = Around::default();
        let mut last = None;
        for region in 1..9u64 {
            for nth in 0..6 {
                let at = (region << 30).saturating_add_signed(nth * step);
                last = Some(around.read(ByteRange::new(at, 4 * KIB), link));
            }
        }
        last.unwrap()
    }

    #[test]
    fn who_comes_back_a_little_further_gets_what_is_ahead() {
        let [ahead, behind] = walk(40 * KIB as i64, FAR);
        assert_eq!((ahead.len, behind.len), (64 * KIB, 0));
        let [ahead, behind] = walk(200 * KIB as i64, FAR);
        assert_eq!((ahead.len, behind.len), (256 * KIB, 0));
    }

    #[test]
    fn who_comes_back_a_little_before_gets_what_is_behind() {
        let [ahead, behind] = walk(-100 * KIB as i64, FAR);
        assert_eq!((ahead.len, behind.len), (0, 128 * KIB));
        let last = (8 << 30) - 500 * KIB;
        assert_eq!(behind.end(), last, "right before what was read");
    }

    #[test]
    fn who_goes_to_and_fro_gets_both() {
        let mut around = Around::default();
        let mut state = 7u64;
        let fetched: Vec<_> = (0..400u64)
            .map(|nth| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                read(&mut around, ((nth / 8) << 30) + (state >> 33) % 64 * 8 * KIB)
            })
            .collect();
        assert!(
            fetched.iter().skip(100).filter(|[ahead, behind]| !ahead.is_empty() && !behind.is_empty()).count() > 150
        );
    }

    #[test]
    fn at_random_nothing_is_fetched() {
        let mut around = Around::default();
        let mut state = 1u64;
        for _ in 0..1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let around = read(&mut around, (state >> 20) & !4095);
            assert!(around.iter().all(|range| range.is_empty()), "{around:?}");
        }
    }

    #[test]
    fn a_stream_is_left_to_who_reads_ahead_of_streams() {
        let mut around = Around::default();
        for nth in 0..1000u64 {
            let ahead = read(&mut around, MIB + nth * 4 * KIB);
            let back = read(&mut around, (1 << 40) - nth * 4 * KIB);
            assert!(ahead.iter().chain(&back).all(|range| range.is_empty()));
        }
    }

    #[test]
    fn where_a_stream_has_passed_readers_are_as_elsewhere() {
        let mut around = Around::default();
        (0..4000u64).for_each(|nth| drop(around.read(ByteRange::new(nth * 64 * KIB, 64 * KIB), FAR).to_vec()));
        let back: Vec<_> = (0..40u64).map(|nth| read(&mut around, nth * 40 * KIB)).collect();
        assert!(back.last().is_some_and(|[ahead, _]| !ahead.is_empty()));
    }

    #[test]
    fn places_that_a_read_joins_are_one() {
        let mut around = Around::default();
        for offset in [0, 8 * KIB, 4 * KIB] {
            read(&mut around, offset);
        }
        assert_eq!(around.places, [ByteRange::new(0, 12 * KIB)]);
    }

    #[test]
    fn what_takes_longer_than_it_saves_is_not_fetched() {
        let step = 300 * KIB as i64;
        assert_eq!(walk(step, FAR)[0].len, 512 * KIB);
        let narrow = LinkModel { bandwidth: 12_500_000, ..FAR };
        assert_eq!(walk(step, narrow)[0].len, 0, "40 ms to save at most as many");
        let near = LinkModel { round_trip: Duration::from_micros(200), ..FAR };
        assert_eq!(walk(40 * KIB as i64, near)[0].len, 0);
        assert_eq!(walk(step, LinkModel::default())[0].len, 0, "nothing is known");
    }

    #[test]
    fn who_stops_to_come_back_gets_nothing_any_more() {
        let mut around = Around::default();
        let near: Vec<_> = (0..20u64).map(|nth| read(&mut around, nth * 40 * KIB)).collect();
        assert!(near.last().is_some_and(|[ahead, _]| !ahead.is_empty()));
        let far: Vec<_> = (1..101u64).map(|nth| read(&mut around, nth << 32)).collect();
        assert!(far.last().is_some_and(|around| around.iter().all(|range| range.is_empty())));
    }

    #[test]
    fn the_ends_of_the_world_are_no_trouble() {
        let mut around = Around::default();
        let huge = LinkModel { bandwidth: u64::MAX, round_trip: Duration::MAX };
        for nth in 0..100u64 {
            let _ = around.read(ByteRange::new(nth * 70 * KIB, 4 * KIB), huge);
            let _ = around.read(ByteRange::new(u64::MAX - 4 * KIB - nth * 70 * KIB, 4 * KIB), huge);
        }
    }
}
