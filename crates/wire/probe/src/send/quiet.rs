//! Starts a train when the kernel's clock ticks disturb it least.
//!
//! A tick occupies a CPU for some 5 µs, under a hypervisor for some 30 µs, and delays packets due meanwhile. Ticks are
//! at whole multiples of their period on `CLOCK_MONOTONIC` (Linux since 6.4; before, they may be elsewhere, and this
//! has no effect). The start of a train within a tick's period is chosen so that few packets, or none, coincide with a
//! tick.

use std::time::Duration;

use rustix::time::{ClockId, clock_getres};

use crate::clock::Nanos;

/// The time around a tick in which no packet should be due.
const BEFORE: Duration = Duration::from_micros(20);
const AFTER: Duration = Duration::from_micros(80);

/// The number of starts tried within a period.
const TRIES: u32 = 64;

/// Returns the best time to start a train of packets with these offsets, at `earliest` or less than a tick's period (1
/// to 10 ms) later.
#[must_use]
pub fn quiet_start(earliest: Nanos, offsets: &[Duration]) -> Nanos {
    // The resolution of the coarse clock is that period.
    let period = clock_getres(ClockId::MonotonicCoarse);
    let period = Duration::new(0, u32::try_from(period.tv_nsec).unwrap_or_default());
    start_between_ticks(period, earliest, offsets)
}

fn start_between_ticks(period: Duration, earliest: Nanos, offsets: &[Duration]) -> Nanos {
    if period <= BEFORE + AFTER {
        return earliest;
    }
    let starts = (0..TRIES).map(|nth| earliest + period * nth / TRIES);
    // The earliest of equally good starts.
    starts
        .min_by_key(|start| offsets.iter().filter(|offset| is_at_tick(period, *start + **offset)).count())
        .unwrap_or(earliest)
}

fn is_at_tick(period: Duration, at: Nanos) -> bool {
    let nanos = |duration: Duration| u64::from(duration.subsec_nanos());
    (at + BEFORE).0 % nanos(period).max(1) < nanos(BEFORE + AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(4);

    fn offsets(packets: u32, gap: Duration) -> Vec<Duration> {
        (0..packets).map(|nth| gap * nth).collect()
    }

    fn hit(start: Nanos, offsets: &[Duration]) -> usize {
        offsets.iter().filter(|offset| is_at_tick(PERIOD, start + **offset)).count()
    }

    #[test]
    fn a_train_shorter_than_a_tick_period_meets_no_tick() {
        for gap in [0, 10, 50].map(Duration::from_micros) {
            let offsets = offsets(50, gap);
            for earliest in (0..100).map(|nth| Nanos(1_000_000_000 + nth * 77_777)) {
                let start = start_between_ticks(PERIOD, earliest, &offsets);
                assert!(start >= earliest && start < earliest + PERIOD);
                assert_eq!(hit(start, &offsets), 0);
            }
        }
    }

    #[test]
    fn a_longer_train_meets_fewer_ticks_than_by_chance() {
        let offsets = offsets(50, Duration::from_micros(242));
        let earliest = Nanos(1_000_000_000);
        let start = start_between_ticks(PERIOD, earliest, &offsets);
        assert!(hit(start, &offsets) <= hit(earliest, &offsets));
        assert_eq!(hit(start, &offsets), 0);
    }

    #[test]
    fn a_train_that_no_start_improves_starts_at_once() {
        let offsets = offsets(5_000, Duration::from_micros(1));
        let earliest = Nanos(1_000_000_123);
        assert!(start_between_ticks(PERIOD, earliest, &offsets) < earliest + PERIOD);
        assert_eq!(start_between_ticks(Duration::ZERO, earliest, &offsets), earliest);
        assert_eq!(start_between_ticks(PERIOD, earliest, &[]), earliest);
        assert!(quiet_start(earliest, &[Duration::ZERO]) >= earliest);
    }
}
