//! The number of pieces to compare, and the resulting bound for the others. No I/O.
//!
//! A source that was opened again, and cannot show that it is the same, is compared with the digests of the bytes read
//! from it before. Reading all of them again would double the work, so a sample is read: `n` of the `N` pieces, chosen
//! at random without replacement. If `K` of the pieces differed, the chance to miss all of them would be
//!
//! ```text
//! P(K) = (N-K)/N · (N-K-1)/(N-1) · … · (N-K-n+1)/(N-n+1)          (hypergeometric, no hit in n draws)
//! ```
//!
//! which falls as `K` grows. If all samples are equal, every `K` with `P(K) ≤ 0.1 %` is rejected with 99.9 %
//! confidence, and the largest remaining `K` is the bound in the report: about `6.9 N / n`. The bound holds for any
//! change made without knowledge of the sample, hence the random numbers of the operating system. It limits the amount
//! that may differ. It does not prove that nothing differs.

use super::CONFIDENCE_PERCENT;

/// Up to this many pieces, all of them are compared.
const ALL_UP_TO: u64 = 64;
/// The largest sample. With more pieces than that, the bound stays below 1 % of the bytes read.
const SAMPLE_MAX: u64 = 690;
/// One in this many pieces is the sample of a large number of pieces: a comparison costs 1 % of the previous work.
const ONE_IN: u64 = 100;

/// The number of pieces to compare out of `population`.
pub fn sample_size(population: u64) -> u64 {
    (population / ONE_IN).clamp(ALL_UP_TO, SAMPLE_MAX).min(population)
}

/// The most pieces of `population` that can differ, with the confidence of [`CONFIDENCE_PERCENT`], if `sample` of them,
/// chosen at random, are equal.
pub fn differing_max(population: u64, sample: u64) -> u64 {
    let sample = sample.min(population);
    // The smallest count that is rejected, by bisection: the chance to miss it only falls.
    let (mut accepted, mut rejected) = (0, population - sample + 1);
    while rejected - accepted > 1 {
        let middle = accepted + (rejected - accepted) / 2;
        if missed(population, sample, middle) > 1.0 - CONFIDENCE_PERCENT / 100.0 {
            accepted = middle;
        } else {
            rejected = middle;
        }
    }
    accepted
}

/// The chance that none of `differing` pieces is among `sample` of `population` pieces. The sum of the two is at most
/// `population`.
fn missed(population: u64, sample: u64, differing: u64) -> f64 {
    let equal = population - differing;
    (0..sample).map(|drawn| (equal - drawn) as f64 / (population - drawn) as f64).product()
}

/// Chooses `count` of the numbers below `population` at random, each at most once, in order. `random` returns uniform
/// 64-bit numbers.
pub fn choose<E>(population: u64, count: u64, mut random: impl FnMut() -> Result<u64, E>) -> Result<Vec<u64>, E> {
    // Floyd's algorithm. The modulo bias is below one in 2^24 for any real disk.
    let mut chosen = std::collections::BTreeSet::new();
    for last in population.saturating_sub(count)..population {
        let number = random()? % (last + 1);
        if !chosen.insert(number) {
            chosen.insert(last);
        }
    }
    Ok(chosen.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_small_part_is_compared_in_full_and_a_large_one_to_within_a_hundredth() {
        assert_eq!(sample_size(0), 0);
        assert_eq!(sample_size(10), 10);
        assert_eq!(sample_size(64), 64);
        assert_eq!(differing_max(64, sample_size(64)), 0);
        assert_eq!((sample_size(1000), sample_size(20_000), sample_size(1 << 24)), (64, 200, 690));
        for population in [70_000, 1 << 20, 1 << 24] {
            let bound = differing_max(population, sample_size(population)) as f64 / population as f64;
            assert!((0.009..0.01).contains(&bound), "{bound}");
        }
    }

    /// The same by counting every subset.
    fn differing_max_naive(population: u32, sample: u32) -> u64 {
        let subsets: Vec<u32> = (0..1 << population).filter(|set: &u32| set.count_ones() == sample).collect();
        let missed = |differing: u32| {
            let hit = (1 << differing) - 1;
            subsets.iter().filter(|set| **set & hit == 0).count() as f64 / subsets.len() as f64
        };
        (0..=population).filter(|differing| missed(*differing) > 0.001).max().unwrap_or(0).into()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_bound_is_that_of_counting_every_sample(population in 1u32..14, part in 0u32..14) {
            let sample = part.min(population);
            prop_assert_eq!(
                differing_max(population.into(), sample.into()), differing_max_naive(population, sample)
            );
        }

        #[test]
        fn chosen_numbers_are_distinct_in_order_and_in_range(
            population in 0u64..500, part in 0u64..600, seed in any::<u64>()
        ) {
            let count = part.min(population);
            let mut state = seed;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                Ok::<_, ()>(state >> 8)
            };
            let chosen = choose(population, count, &mut random).unwrap();
            prop_assert_eq!(chosen.len() as u64, count);
            prop_assert!(chosen.is_sorted_by(|a, b| a < b) && chosen.iter().all(|number| *number < population));
        }
    }
}
