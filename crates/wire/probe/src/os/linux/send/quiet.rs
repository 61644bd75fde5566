//! Starts a train when it is disturbed least: by ticks of this kernel's clock, and by pauses that come as regularly.
//!
//! A tick occupies a CPU for some 5 µs, under a hypervisor for some 30 µs, and delays packets due meanwhile. Ticks are
//! at whole multiples of their period on `CLOCK_MONOTONIC` (Linux since 6.4; before, they may be elsewhere, and this
//! has no effect).
//!
//! The host of a virtual machine has ticks of its own, which take a processor from it for some 10 µs. When they come is
//! not known, but a sender that spins sees them ([`Pauses`]).
//!
//! The start of a train within a tick's period is chosen so that few packets, or none, are due at either.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::time::{ClockId, clock_getres};

use crate::clock::Nanos;

/// The time around a tick in which no packet should be due.
const BEFORE: Duration = Duration::from_micros(20);
const AFTER: Duration = Duration::from_micros(80);
/// The same around a pause: handing a packet over takes a few microseconds, and the first one after a pause is slower.
const BEFORE_PAUSE: Duration = Duration::from_micros(5);
const AFTER_PAUSE: Duration = Duration::from_micros(3);

/// The number of starts tried within a period, and packets looked at for all of them.
const TRIES: std::ops::RangeInclusive<usize> = 64..=800;
const LOOKS: usize = 100_000;

/// The period of a host's ticks, or a divisor of it: hosts have 100, 250 or 1000 ticks a second.
const HOST_PERIOD: Duration = Duration::from_millis(1);
/// The number of pauses remembered, and for how long: clocks of guest and host drift apart.
const RECENT: usize = 48;
const RECENT_FOR: Duration = Duration::from_secs(5);
/// The pauses of a host's ticks begin within this time of each other,
const TOGETHER: Duration = Duration::from_micros(25);
/// and there are at least this many, and this share of all.
const REGULAR_MIN: usize = 6;
const REGULAR_SHARE: f64 = 0.4;

/// A time in which the spinning thread did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

/// The pauses that the latest trains met.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    recent: VecDeque<Pause>,
}

impl Pauses {
    /// Remembers the pauses of a train.
    pub(super) fn note(&mut self, pauses: &[Pause]) {
        let (period, now) = (tick_period(), Nanos::now());
        // Those at ticks of this kernel are no news.
        self.recent.extend(pauses.iter().filter(|pause| !is_at_tick(period, pause.from)));
        let outdated = self.recent.iter().take_while(|pause| now.since(pause.from) > RECENT_FOR).count();
        self.recent.drain(..outdated.max(self.recent.len().saturating_sub(RECENT)));
    }

    /// Returns the time within each [`HOST_PERIOD`] that regular pauses take, if there are any: its begin, and its length.
    fn regular(&self) -> Option<(Duration, Duration)> {
        let mut phases: Vec<_> =
            self.recent.iter().map(|pause| (phase(HOST_PERIOD, pause.from), pause.to.since(pause.from))).collect();
        phases.sort_unstable();
        // The first of them are looked at twice, so that neighbours across the end of a period are.
        let again: Vec<_> = phases.iter().map(|(begin, length)| (*begin + HOST_PERIOD, *length)).collect();
        let around: Vec<_> = phases.iter().chain(&again).copied().collect();
        let together = (0..phases.len()).filter_map(|first| around.get(first..)).map(|from| {
            let begin = from.first().map(|(begin, _)| *begin).unwrap_or_default();
            from.get(..from.partition_point(|(other, _)| *other <= begin + TOGETHER)).unwrap_or_default()
        });
        let regular = together.max_by_key(|together| together.len())?;
        let is_regular = regular.len() >= REGULAR_MIN && regular.len() as f64 >= REGULAR_SHARE * phases.len() as f64;
        let (begin, end) = (regular.first()?.0, regular.iter().map(|(begin, length)| *begin + *length).max()?);
        is_regular.then(|| (begin, end.saturating_sub(begin).min(HOST_PERIOD)))
    }
}

/// Returns the best time to start a train of packets with these offsets, at `earliest` or less than a tick's period (1
/// to 10 ms) later.
pub(super) fn quiet_start(pauses: &Pauses, earliest: Nanos, offsets: &[Duration]) -> Nanos {
    start_between(tick_period(), pauses.regular(), earliest, offsets)
}

/// The resolution of the coarse clock is the period of ticks.
fn tick_period() -> Duration {
    Duration::new(0, u32::try_from(clock_getres(ClockId::MonotonicCoarse).tv_nsec).unwrap_or_default())
}

fn start_between(
    period: Duration,
    regular: Option<(Duration, Duration)>,
    earliest: Nanos,
    offsets: &[Duration],
) -> Nanos {
    if period <= BEFORE + AFTER {
        return earliest;
    }
    let is_disturbed = |at: Nanos| {
        is_at_tick(period, at)
            || regular.is_some_and(|(begin, length)| {
                phase(HOST_PERIOD, at + HOST_PERIOD + BEFORE_PAUSE - begin) < BEFORE_PAUSE + length + AFTER_PAUSE
            })
    };
    let tries = (LOOKS / offsets.len().max(1)).clamp(*TRIES.start(), *TRIES.end()) as u32;
    let starts = (0..tries).map(|nth| earliest + period * nth / tries);
    // The earliest of equally good starts.
    starts
        .min_by_key(|start| offsets.iter().filter(|offset| is_disturbed(*start + **offset)).count())
        .unwrap_or(earliest)
}

fn is_at_tick(period: Duration, at: Nanos) -> bool {
    phase(period, at + BEFORE) < BEFORE + AFTER
}

/// Returns the time since the last whole multiple of a period of less than a second.
fn phase(period: Duration, at: Nanos) -> Duration {
    Duration::from_nanos(at.0 % u64::from(period.subsec_nanos()).max(1))
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
                let start = start_between(PERIOD, None, earliest, &offsets);
                assert!(start >= earliest && start < earliest + PERIOD);
                assert_eq!(hit(start, &offsets), 0);
            }
        }
    }

    #[test]
    fn a_longer_train_meets_fewer_ticks_than_by_chance() {
        let offsets = offsets(50, Duration::from_micros(242));
        let earliest = Nanos(1_000_000_000);
        let start = start_between(PERIOD, None, earliest, &offsets);
        assert!(hit(start, &offsets) <= hit(earliest, &offsets));
        assert_eq!(hit(start, &offsets), 0);
    }

    #[test]
    fn a_train_that_no_start_improves_starts_at_once() {
        let offsets = offsets(5_000, Duration::from_micros(1));
        let earliest = Nanos(1_000_000_123);
        assert!(start_between(PERIOD, None, earliest, &offsets) < earliest + PERIOD);
        assert_eq!(start_between(Duration::ZERO, None, earliest, &offsets), earliest);
        assert_eq!(start_between(PERIOD, None, earliest, &[]), earliest);
        assert!(quiet_start(&Pauses::default(), earliest, &[Duration::ZERO]) >= earliest);
    }

    /// Pauses of 12 µs that begin at this phase of each millisecond, or up to 9 µs later, and as many at random.
    fn pauses(phase_us: u64, regular: u64, random: u64) -> Pauses {
        let begin = Nanos::now().0 / 4_000_000 * 4_000_000;
        let pause = |from| Pause { from: Nanos(from), to: Nanos(from + 12_000) };
        let ticks = (0..regular)
            .map(|nth| pause(begin + (5 * nth + phase_us / 1000) * 1_000_000 + (phase_us + nth % 10) * 1000));
        let others =
            (0..random).map(|nth| pause(begin + (nth * 7 + 1) * 1_000_000 + 100_000 + nth * 7_919_000 % 800_000));
        let mut found = Pauses::default();
        found.note(&ticks.chain(others).collect::<Vec<_>>());
        found
    }

    #[test]
    fn regular_pauses_are_told_from_others() {
        assert_eq!(Pauses::default().regular(), None);
        assert_eq!(pauses(760, 5, 0).regular(), None, "too few");
        assert_eq!(pauses(760, 0, 40).regular(), None, "at random");
        for phase_us in [100, 760, 995] {
            let (begin, length) = pauses(phase_us, 20, 8).regular().unwrap();
            let begin_us = begin.as_micros() as u64;
            assert!((phase_us.saturating_sub(25)..=phase_us).contains(&begin_us), "{phase_us}: {begin:?}");
            assert!((21..60).contains(&length.as_micros()), "{length:?}");
        }
    }

    #[test]
    fn packets_are_due_beside_regular_pauses() {
        for gap in [10, 50, 242].map(Duration::from_micros) {
            let offsets = offsets(50, gap);
            for regular in [0, 333, 760, 990].map(|us| (Duration::from_micros(us), Duration::from_micros(15))) {
                for earliest in (0..20).map(|nth| Nanos(1_000_000_000 + nth * 177_777)) {
                    let start = start_between(PERIOD, Some(regular), earliest, &offsets);
                    let since = |offset: &Duration| phase(HOST_PERIOD, start + *offset + HOST_PERIOD - regular.0);
                    let disturbed = offsets.iter().filter(|offset| since(offset) < regular.1).count();
                    assert_eq!((disturbed, hit(start, &offsets)), (0, 0), "{gap:?}, {regular:?}");
                }
            }
        }
    }
}
