//! Order statistics.

/// Returns the finite values, sorted.
#[must_use]
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values = values.into_iter().filter(|value| value.is_finite()).collect::<Vec<_>>();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Returns the `q`-quantile, 0 to 1, of sorted values, interpolated linearly; `None` if there are none.
#[must_use]
pub fn percentile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q.clamp(0.0, 1.0) * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(below + (above - below) * at.fract())
}

/// Returns the median of sorted values.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    percentile(sorted, 0.5)
}

/// Returns the arithmetic mean; `None` if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the standard error of the mean; `None` if there are fewer than two values.
#[must_use]
pub fn standard_error(values: &[f64]) -> Option<f64> {
    let (mean, count) = (mean(values)?, values.len() as f64);
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (count > 1.0).then(|| (squares / (count - 1.0) / count).sqrt())
}

/// Returns the smallest of sorted values that at least a share of `q`, 0 to 1, of them does not exceed; `None` if there
/// are none.
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

/// A mode: values that lie close together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// Their median.
    pub median: f64,
    /// A quarter of them lie below.
    pub low: f64,
    /// A quarter of them lie above.
    pub high: f64,
    /// Their number.
    pub count: usize,
    /// Their highest density, comparable with that of other modes of the same values.
    pub density: f64,
}

/// Returns the modes of the values above zero, in order: each is a peak of the density with the values up to the
/// valleys on either side. The density is that of the logarithms, with a triangular kernel of `width` (a share, as
/// 0.05), so that a width means the same everywhere.
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

/// Returns sorted values, with the midpoint of every two neighbours between them.
fn with_middles(values: &[f64]) -> Vec<f64> {
    let middles = values.windows(2).map(|pair| pair.iter().sum::<f64>() / 2.0).map(Some).chain([None]);
    values.iter().copied().zip(middles).flat_map(|(value, middle)| std::iter::once(value).chain(middle)).collect()
}

/// Returns, for each of some sorted places, the number of sorted values within `width` of it, weighted by distance.
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

/// Returns the boundaries between modes: the lowest place between two peaks, if it is clearly lower than both; and both
/// ends.
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
    fn the_median_of_no_values_is_none() {
        assert_eq!((median(&[]), mean(&[]), nearest_rank::<u64>(&[], 0.5)), (None, None, None));
        assert_eq!(modes(&[], 0.05), []);
        assert_eq!(sorted([f64::NAN, f64::INFINITY]), [] as [f64; 0]);
    }

    #[test]
    fn a_quantile_between_two_values_is_interpolated() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.5, 1.0].map(|q| percentile(&values, q)), [Some(1.0), Some(3.0), Some(8.0)]);
        assert_eq!([0.0, 0.25, 0.26, 1.0].map(|q| nearest_rank(&values, q).copied()), [1.0, 1.0, 2.0, 8.0].map(Some));
    }

    #[test]
    fn two_clusters_of_values_are_two_modes() {
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
            for (estimated, right) in densities(&values, &values, width).into_iter().zip(naive) {
                prop_assert!((estimated - right).abs() < 1e-9, "{estimated} {right}");
            }
        }
    }
}
