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
    let densities = densities(&logarithms, width.max(1e-6));
    valleys(&densities)
        .windows(2)
        .filter_map(|bounds| {
            let &[from, to] = bounds else { return None };
            let within = values.get(from..to)?;
            let density = densities.get(from..to)?.iter().copied().fold(0.0, f64::max);
            let (low, high) = (percentile(within, 0.25)?, percentile(within, 0.75)?);
            Some(Mode { median: median(within)?, low, high, count: within.len(), density })
        })
        .collect()
}

/// At each of the values, in order, how many lie within `width` of it, those farther away counting less.
fn densities(values: &[f64], width: f64) -> Vec<f64> {
    let mut from = 0;
    let near = |(i, at): (usize, &f64)| {
        while values.get(from).is_some_and(|value| at - value >= width) {
            from += 1;
        }
        let weight = |value: &f64| (1.0 - (value - at).abs() / width).max(0.0);
        let below = values.iter().take(i).skip(from).map(weight).sum::<f64>();
        below + values.iter().skip(i).map(weight).take_while(|weight| *weight > 0.0).sum::<f64>()
    };
    values.iter().enumerate().map(near).collect()
}

/// Where to part values between two peaks: the lowest place between, if it is clearly lower than both. With both ends.
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
