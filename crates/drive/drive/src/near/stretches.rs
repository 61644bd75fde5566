//! Many places in few words: places at regular distances, as the units of a stripe are, become stretches.

use cheetah_control::jobs::{Stretch, UnitPlace};

/// The most units of a round that are looked for: those of a stripe within a unit of a bundle, or within a larger unit.
const ROUND_MAX: usize = 64;

/// Describes `places`, in order.
pub(super) fn stretches(places: &[UnitPlace]) -> Vec<Stretch> {
    let mut rest = places;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let stretch = longest(rest);
        // Not truncated: a number of places.
        rest = rest.get(stretch.rounds as usize * stretch.units.len()..).unwrap_or_default();
        found.push(stretch);
    }
    found
}

/// The stretch that describes most of the first places.
fn longest(places: &[UnitPlace]) -> Stretch {
    let (mut best, mut best_covered) = (1, 1);
    for round in 1..=ROUND_MAX.min(places.len()) {
        let covered = covered(places, round);
        if covered > best_covered {
            (best, best_covered) = (round, covered);
        }
        if covered == places.len() {
            break;
        }
    }
    let (export_step, text_step) = step(places, best).unwrap_or_default();
    let units = places.iter().take(best).copied().collect();
    Stretch { rounds: (best_covered / best) as u64, units, export_step, text_step }
}

/// How many of the first places are whole rounds of this length.
fn covered(places: &[UnitPlace], round: usize) -> usize {
    let step = step(places, round);
    let regular = (round..places.len()).take_while(|at| step.is_some() && step_at(places, *at, round) == step).count();
    (round + regular) / round * round
}

fn step(places: &[UnitPlace], round: usize) -> Option<(u64, u64)> {
    step_at(places, round, round)
}

/// The distance of a place from that of the round before; `None` if it does not come after that.
fn step_at(places: &[UnitPlace], at: usize, round: usize) -> Option<(u64, u64)> {
    let (place, before) = (places.get(at)?, places.get(at.checked_sub(round)?)?);
    Some((place.export.checked_sub(before.export)?, place.text.checked_sub(before.text)?))
}

#[cfg(test)]
mod tests {
    use cheetah_control::jobs::Units;
    use proptest::prelude::*;

    use super::*;

    fn place(export: u64, text: u64) -> UnitPlace {
        UnitPlace { export, text }
    }

    fn again(stretches: Vec<Stretch>) -> Vec<UnitPlace> {
        Units { stretches, ..Units::default() }.places().collect()
    }

    #[test]
    fn the_units_of_a_stripe_are_one_stretch_and_so_are_those_of_a_stripe_in_a_bundle() {
        let stripe: Vec<_> = (0..1000).map(|unit| place(unit, unit * 4 + 1)).collect();
        assert_eq!(stretches(&stripe).len(), 1);
        // A stripe of three nodes takes turns with others after 16 units.
        let bundle: Vec<_> = (0..960u64).filter(|unit| unit % 3 == 1).map(|unit| (unit / 3, unit)).collect();
        let bundle: Vec<_> = bundle.into_iter().map(|(at, unit)| place(at, unit / 16 * 64 + unit % 16)).collect();
        let found = stretches(&bundle);
        assert_eq!((found.len(), found[0].units.len()), (1, 16));
        assert_eq!(again(found), bundle);
    }

    proptest! {
        #[test]
        fn stretches_have_the_places_in_their_order(places in prop::collection::vec((0u64..5, 0u64..5), 0..200)) {
            let places: Vec<_> = places.into_iter().map(|(export, text)| place(export, text)).collect();
            prop_assert_eq!(again(stretches(&places)), places);
        }
    }
}
