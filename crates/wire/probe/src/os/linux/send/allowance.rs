//! The CPU time that a real-time thread may use.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::clock::Nanos;

/// The most time that accumulates: enough for trains of hundreds of packets 250 µs apart. Other programs and signals
/// wait no longer than this.
const MOST: Duration = Duration::from_millis(200);

/// CPU time earned by each unit of sleep: nine tenths of a CPU in the long run, below the kernel's default limit of 95
/// %.
const EARNED: u32 = 9;

/// The interval of accounting, which takes a system call.
const EVERY: Duration = Duration::from_millis(5);

/// The CPU time that a real-time thread may use. It is earned by sleeping, while other threads have the CPU.
///
/// No program interrupts a thread that spins with real-time priority, so a machine with one CPU would run nothing else.
/// The kernel's own guard, `sched_rt_runtime_us`, may have been turned off.
#[derive(Debug)]
pub(super) struct Allowance {
    left: Duration,
    /// When it was last accounted, and the thread's CPU time by then.
    at: Nanos,
    computed: Duration,
}

impl Allowance {
    pub(super) fn new() -> Self {
        Self { left: MOST, at: Nanos::now(), computed: Duration::ZERO }
    }

    /// Starts accounting for the calling thread. Until now it slept, or had no priority.
    pub(super) fn begin(&mut self) {
        let now = Nanos::now();
        self.account(now.since(self.at), Duration::ZERO);
        (self.at, self.computed) = (now, computed());
    }

    /// Whether the thread that called [`begin`](Self::begin) has used up its allowance at `now`.
    pub(super) fn is_used_up(&mut self, now: Nanos) -> bool {
        if now.since(self.at) >= EVERY {
            let computed = computed();
            self.account(now.since(self.at), computed.saturating_sub(self.computed));
            (self.at, self.computed) = (now, computed);
        }
        self.left.is_zero()
    }

    /// Accounts for an interval: its length, and the CPU time used in it.
    fn account(&mut self, passed: Duration, computed: Duration) {
        let rested = passed.saturating_sub(computed);
        self.left = (self.left + rested.saturating_mul(EARNED)).min(MOST).saturating_sub(computed);
    }
}

/// The CPU time of the calling thread so far.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The number of packets until the allowance is used up, with `slept_us` of each gap slept.
    fn packets(gap_us: u64, slept_us: u64) -> Option<u64> {
        let mut allowance = Allowance::new();
        let [gap, computed] = [gap_us, gap_us - slept_us].map(Duration::from_micros);
        (0..10_000).find(|_| {
            allowance.account(gap, computed);
            allowance.left.is_zero()
        })
    }

    #[test]
    fn trains_of_hundreds_are_sent_whole_and_long_ones_that_never_sleep_are_not() {
        assert_eq!(packets(10, 0), None);
        assert!(packets(50, 0).is_some_and(|packets| packets > 3_000));
        assert!(packets(242, 0).is_some_and(|packets| (800..900).contains(&packets)));
        assert!(packets(590, 0).is_some_and(|packets| packets < 400));
        assert_eq!(packets(700, 400), None);
    }

    #[test]
    fn cpu_time_of_another_thread_does_not_count() {
        let mut allowance = Allowance::new();
        allowance.begin();
        assert!(!allowance.is_used_up(Nanos::now()));
    }

    proptest! {
        #[test]
        fn a_tenth_is_left_to_others(steps in prop::collection::vec((0_u64..400_000, 0_u64..10_000), 1..200)) {
            let mut allowance = Allowance::new();
            let (mut computed, mut rested) = (Duration::ZERO, Duration::ZERO);
            for (compute, rest) in steps {
                // Priority is given up once the allowance is seen to be used up; it is checked at this interval.
                for part in (0..compute).step_by(5_000).map(|begun| Duration::from_micros((compute - begun).min(5_000))) {
                    if allowance.left.is_zero() {
                        break;
                    }
                    allowance.account(part, part);
                    computed += part;
                }
                let rest = Duration::from_micros(rest);
                allowance.account(rest, Duration::ZERO);
                rested += rest;
                prop_assert!(computed <= MOST + rested * EARNED + EVERY * 200);
            }
        }
    }
}
