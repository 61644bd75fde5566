//! Checks whether a train left on time. One that did not is discarded and sent again.

use std::time::Duration;

use crate::clock::Nanos;
use crate::estimate::stats;

/// The bound on gap errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The largest gap error, either way.
    pub gap_error_max: Duration,
}

impl Bound {
    const fn is_exceeded(self, error_ns: i64) -> bool {
        error_ns.unsigned_abs() as u128 > self.gap_error_max.as_nanos()
    }
}

/// The absolute errors of a train's gaps, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GapErrors {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// The result of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every gap was within the bound.
    Accepted(GapErrors),
    /// A gap was not.
    Spoiled {
        /// The packet, from 0, after the gap with the largest error; the first of equals.
        at: usize,
        /// The error, in nanoseconds: above zero if the gap was too long.
        error_ns: i64,
    },
    /// The times are not known well enough to decide.
    Unknown,
}

/// The times between which a packet left: the same time twice, if it is known exactly. Packets leave in order, even if
/// their exact times are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The earliest time.
    pub earliest: Nanos,
    /// The latest time.
    pub latest: Nanos,
}

impl TimeRange {
    /// Creates a range of one time.
    #[must_use]
    pub const fn exactly(at: Nanos) -> Self {
        Self { earliest: at, latest: at }
    }
}

/// Returns the error of each gap in nanoseconds, above zero if it was too long; `None` if a packet's time is unknown.
/// For a gap that is not known exactly it is the largest possible error.
#[must_use]
pub fn gap_errors(due: &[Nanos], left: &[Option<TimeRange>]) -> Option<Vec<i64>> {
    Some(ranges(due, left)?.into_iter().map(GapError::most).collect())
}

/// The range of a gap's error, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct GapError {
    low: i64,
    high: i64,
}

impl GapError {
    fn new(due: i64, one: TimeRange, next: TimeRange) -> Self {
        let high = difference(one.earliest, next.latest);
        // Packets leave in order, unless the ranges show otherwise.
        let low = difference(one.latest, next.earliest).max(high.min(0));
        Self { low: low - due, high: high - due }
    }

    /// Returns the error furthest from zero.
    const fn most(self) -> i64 {
        if self.low.unsigned_abs() > self.high.unsigned_abs() { self.low } else { self.high }
    }

    /// Returns the error nearest to zero.
    const fn least(self) -> i64 {
        if self.low > 0 {
            self.low
        } else if self.high < 0 {
            self.high
        } else {
            0
        }
    }
}

fn ranges(due: &[Nanos], left: &[Option<TimeRange>]) -> Option<Vec<GapError>> {
    if due.len() != left.len() {
        return None;
    }
    let left = left.iter().copied().collect::<Option<Vec<_>>>()?;
    let errors = due.windows(2).zip(left.windows(2)).filter_map(|(due, left)| match (due, left) {
        (&[due, next_due], &[left, next_left]) => Some(GapError::new(difference(due, next_due), left, next_left)),
        _ => None,
    });
    Some(errors.collect())
}

/// Returns the nanoseconds from `earlier` to `later`, clamped to half the range, so that the difference of two results
/// fits.
fn difference(earlier: Nanos, later: Nanos) -> i64 {
    let ns = i128::from(later.0) - i128::from(earlier.0);
    i64::try_from(ns.clamp(i128::from(i64::MIN / 2), i128::from(i64::MAX / 2))).unwrap_or_default()
}

/// Checks a train that was due at `due` and left at `left`. Only gaps count, not whether the whole train was late.
#[must_use]
pub fn check(due: &[Nanos], left: &[Option<TimeRange>], bound: Bound) -> Verdict {
    let Some(errors) = ranges(due, left) else { return Verdict::Unknown };
    let worst = errors.iter().map(|error| error.least()).enumerate().rev().max_by_key(|(_, ns)| ns.unsigned_abs());
    match worst {
        Some((gap, error_ns)) if bound.is_exceeded(error_ns) => Verdict::Spoiled { at: gap + 1, error_ns },
        _ if errors.iter().any(|error| bound.is_exceeded(error.most())) => Verdict::Unknown,
        _ => Verdict::Accepted(GapErrors::of(&errors.into_iter().map(GapError::most).collect::<Vec<_>>())),
    }
}

/// Checks a train by the time from its first packet to its last, as if all gaps were equal.
#[must_use]
pub fn check_whole(due: &[Nanos], left: &[Option<TimeRange>], bound: Bound) -> Verdict {
    match mean_error(due, left) {
        Some(error_ns) if bound.is_exceeded(error_ns) => Verdict::Spoiled { at: 1, error_ns },
        Some(error_ns) => Verdict::Accepted(GapErrors::of(&[error_ns])),
        None => Verdict::Unknown,
    }
}

fn mean_error(due: &[Nanos], left: &[Option<TimeRange>]) -> Option<i64> {
    let all = left.iter().copied().collect::<Option<Vec<_>>>().filter(|_| left.len() == due.len())?;
    let (&[due, .., last_due], &[left, .., last_left]) = (due, all.as_slice()) else { return None };
    let gaps = i64::try_from(all.len() - 1).ok()?;
    Some(GapError::new(difference(due, last_due), left, last_left).most() / gaps)
}

impl GapErrors {
    /// Summarizes the errors of gaps, in nanoseconds; zeros if there are none.
    #[must_use]
    pub fn of(errors_ns: &[i64]) -> Self {
        let mut sizes = errors_ns.iter().map(|error| error.unsigned_abs()).collect::<Vec<_>>();
        sizes.sort_unstable();
        let at = |q| stats::nearest_rank(&sizes, q).copied().unwrap_or_default();
        Self { p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUND: Bound = Bound { gap_error_max: Duration::from_micros(5) };

    fn exactly(at: u64) -> Option<TimeRange> {
        Some(TimeRange::exactly(Nanos(at)))
    }

    fn train(times: &[u64]) -> (Vec<Nanos>, Vec<Option<TimeRange>>) {
        (times.iter().copied().map(Nanos).collect(), times.iter().copied().map(exactly).collect())
    }

    #[test]
    fn a_late_train_with_right_gaps_is_accepted() {
        let (due, _) = train(&[0, 50_000, 100_000, 150_000]);
        let (_, left) = train(&[900_000, 950_100, 1_000_000, 1_050_000]);
        let errors = GapErrors { p50_ns: 100, p99_ns: 100, max_ns: 100 };
        assert_eq!(check(&due, &left, BOUND), Verdict::Accepted(errors));
    }

    #[test]
    fn the_gap_with_the_largest_error_is_reported() {
        let (due, _) = train(&[0, 50_000, 100_000, 150_000]);
        let (_, left) = train(&[0, 56_000, 100_000, 150_000]);
        assert_eq!(check(&due, &left, BOUND), Verdict::Spoiled { at: 1, error_ns: 6_000 });
        let (_, left) = train(&[0, 50_000, 100_000, 90_000]);
        assert_eq!(check(&due, &left, BOUND), Verdict::Spoiled { at: 3, error_ns: -60_000 });
    }

    #[test]
    fn a_train_not_known_to_have_left_is_not_accepted() {
        let (due, mut left) = train(&[0, 50_000]);
        assert_eq!(check(&due, &left[..1], BOUND), Verdict::Unknown);
        left[1] = None;
        assert_eq!(check(&due, &left, BOUND), Verdict::Unknown);
    }

    #[test]
    fn one_packet_has_no_gap_to_be_wrong() {
        let (due, _) = train(&[7]);
        assert_eq!(check(&due, &[exactly(900)], BOUND), Verdict::Accepted(GapErrors::default()));
    }

    proptest! {
        #[test]
        fn a_train_is_accepted_if_and_only_if_every_gap_is_within_bounds(times in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20), bound_ns: u64) {
            let due = times.iter().map(|(due, _)| Nanos(*due)).collect::<Vec<_>>();
            let left = times.iter().map(|(_, left)| exactly(*left)).collect::<Vec<_>>();
            let bound = Bound { gap_error_max: Duration::from_nanos(bound_ns >> 4) };
            let worst = times.windows(2).map(|pair| {
                let gap = |a: u64, b: u64| (i128::from(b) - i128::from(a)).clamp(i128::from(i64::MIN / 2), i128::from(i64::MAX / 2));
                (gap(pair[0].1, pair[1].1) - gap(pair[0].0, pair[1].0)).unsigned_abs()
            }).max().unwrap_or(0);
            let accepted = matches!(check(&due, &left, bound), Verdict::Accepted(_));
            prop_assert_eq!(accepted, worst <= bound.gap_error_max.as_nanos());
        }

        #[test]
        fn verdicts_on_time_ranges_hold_for_every_time_within_them(
            packets in prop::collection::vec((0_u64..20, 0_u64..20, 0_u64..20), 2..6), bound_ns in 0_u64..20,
        ) {
            let bound = Bound { gap_error_max: Duration::from_nanos(bound_ns) };
            let (mut due, mut left, mut truly, mut at) = (Vec::new(), Vec::new(), Vec::new(), 100);
            for (number, (gap, before, after)) in packets.iter().enumerate() {
                at += gap;
                due.push(Nanos(100 + 10 * number as u64));
                truly.push(exactly(at));
                left.push(Some(TimeRange { earliest: Nanos(at - before), latest: Nanos(at + after) }));
            }
            let really = check(&due, &truly, bound);
            match check(&due, &left, bound) {
                Verdict::Unknown => {}
                verdict => prop_assert_eq!(std::mem::discriminant(&verdict), std::mem::discriminant(&really)),
            }
        }
    }
}
