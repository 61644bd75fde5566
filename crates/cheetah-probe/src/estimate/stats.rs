//! Order statistics.

/// The values that are finite, in order.
#[must_use]
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values = values.into_iter().filter(|value| value.is_finite()).collect::<Vec<_>>();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The `q`-quantile, 0 to 1, of values in order, between two of them in proportion; nothing of none.
#[must_use]
pub fn percentile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q.clamp(0.0, 1.0) * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(below + (above - below) * at.fract())
}

/// The middle of values in order.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    percentile(sorted, 0.5)
}

/// The arithmetic mean; nothing of none.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Of values in order, the smallest that at least a share of `q`, 0 to 1, is no larger than; nothing of none.
#[must_use]
pub fn nearest_rank<T>(sorted: &[T], q: f64) -> Option<&T> {
    let rank = (q.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1))
}

/// Returns the share of values within `width` (a share, as 0.05) of `at`.
#[must_use]
pub fn share_within(values: &[f64], at: f64, width: f64) -> f64 {
    let within = values.iter().filter(|value| (**value - at).abs() <= width * at).count();
    within as f64 / values.len().max(1) as f64
}

/// Values that lie close together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// The middle of them.
    pub median: f64,
    /// A quarter of them lie below.
    pub low: f64,
    /// A quarter of them lie above.
    pub high: f64,
    /// How many they are.
    pub count: usize,
    /// How dense they are at their densest, beside other modes of the same values.
    pub density: f64,
}

/// The modes of values above zero, in order: where their density has a peak, each with the values up to the valleys on
/// either side. The density is that of their logarithms, with a triangle of `width` (a share, as 0.05) to either side for each
/// value, so that a width means the same everywhere.
#[must_use]
pub fn modes(sorted: &[f64], width: f64) -> Vec<Mode> {
    let values = &sorted[sorted.partition_point(|value| *value <= 0.0)..];
    let logarithms = values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let densities = densities(&logarithms, &with_middles(&logarithms), width.max(1e-6));
    let bounds = valleys(&densities);
    let mode = |bounds: &[usize]| {
        let &[from, to] = bounds else { return None };
        // Places with odd numbers lie between two values.
        let within = values.get(from.div_ceil(2)..to.div_ceil(2))?;
        let density = densities.get(from..to)?.iter().copied().fold(0.0, f64::max);
        let (low, high) = (percentile(within, 0.25)?, percentile(within, 0.75)?);
        Some(Mode { median: median(within)?, low, high, count: within.len(), density })
    };
    bounds.windows(2).filter_map(mode).collect()
}

/// Values in order, and in between the middle between each two.
fn with_middles(values: &[f64]) -> Vec<f64> {
    let middles = values.windows(2).map(|pair| pair.iter().sum::<f64>() / 2.0).map(Some).chain([None]);
    values.iter().copied().zip(middles).flat_map(|(value, middle)| std::iter::once(value).chain(middle)).collect()
}

/// At each of some places, in order, how many of values, in order, lie within `width` of it, those farther away counting less.
fn densities(values: &[f64], places: &[f64], width: f64) -> Vec<f64> {
    let mut from = 0;
    let near = |at: &f64| {
        while values.get(from).is_some_and(|value| at - value >= width) {
            from += 1;
        }
        let weight = |value: &f64| 1.0 - (value - at).abs() / width;
        values.iter().skip(from).map(weight).take_while(|weight| *weight > 0.0).sum::<f64>()
    };
    places.iter().map(near).collect()
}

/// Where to part places between two peaks: the lowest between, if it is clearly lower than both. With both ends.
fn valleys(densities: &[f64]) -> Vec<usize> {
    /// A valley is no deeper than chance unless it is lower than the lower of its peaks by a third.
    const DEPTH: f64 = 2.0 / 3.0;
    let mut bounds = vec![0];
    let (mut peak, mut low, mut low_at) = (0.0_f64, f64::INFINITY, 0);
    for (i, density) in densities.iter().copied().enumerate() {
        if density < low {
            (low, low_at) = (density, i);
        }
        if low < peak * DEPTH && low < density * DEPTH {
            bounds.push(low_at);
            (peak, low, low_at) = (density, density, i);
        } else if density > peak {
            (peak, low, low_at) = (density, density, i);
        }
    }
    bounds.push(densities.len());
    bounds
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_nothing_there_is_no_middle() {
        assert_eq!((median(&[]), mean(&[]), nearest_rank::<u64>(&[], 0.5)), (None, None, None));
        assert_eq!(modes(&[], 0.05), []);
        assert_eq!(sorted([f64::NAN, f64::INFINITY]), [] as [f64; 0]);
    }

    #[test]
    fn between_two_values_is_what_lies_between() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.5, 1.0].map(|q| percentile(&values, q)), [Some(1.0), Some(3.0), Some(8.0)]);
        assert_eq!([0.0, 0.25, 0.26, 1.0].map(|q| nearest_rank(&values, q).copied()), [1.0, 1.0, 2.0, 8.0].map(Some));
    }

    #[test]
    fn two_heaps_are_two_modes() {
        let heap = |at: f64, count: u32| (0..count).map(move |i| at * (1.0 + f64::from(i % 10) * 0.002));
        let found = modes(&sorted(heap(12.0, 70).chain(heap(24.0, 30))), 0.04);
        let [a, b] = found[..] else { panic!("{found:?}") };
        assert_eq!((a.count, b.count), (70, 30));
        assert!((12.0..12.24).contains(&a.median) && (24.0..24.48).contains(&b.median), "{found:?}");
        assert!(a.density > b.density && a.low <= a.median && a.median <= a.high);
    }

    proptest! {
        #[test]
        fn every_value_above_zero_is_in_one_mode(values in prop::collection::vec(-1.0..100.0_f64, 0..80), width in 0.0..1.0_f64) {
            let values = sorted(values);
            let found = modes(&values, width);
            let above = values.iter().filter(|value| **value > 0.0).count();
            prop_assert_eq!(found.iter().map(|mode| mode.count).sum::<usize>(), above);
            prop_assert!(found.windows(2).all(|pair| pair[0].high <= pair[1].low));
        }

        #[test]
        fn densities_are_those_of_every_pair(values in prop::collection::vec(0.0..10.0_f64, 0..60), width in 0.01..5.0_f64) {
            let values = sorted(values);
            let naive = values.iter().map(|at| values.iter().map(|value| (1.0 - (value - at).abs() / width).max(0.0)).sum::<f64>());
            for (told, right) in densities(&values, &values, width).into_iter().zip(naive) {
                prop_assert!((told - right).abs() < 1e-9, "{told} {right}");
            }
        }
    }
}
