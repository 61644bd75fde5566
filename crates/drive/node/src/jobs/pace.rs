//! How many jobs are worked on: fewer while threads of this machine wait for a processor.
//!
//! The kernel's idle class keeps the threads behind all others, but not out of their way: a thread that is about to be displaced delays
//! them a little, and its content displaces theirs from caches. So the jobs pause as the congestion windows of TCP do: the half of
//! them at once while something waits, and one more after a while in which hardly anything does (pressure stall information,
//! Documentation/accounting/psi.rst of Linux). The node's own threads that wait count, too: then other programs have the processors.
//!
//! The jobs that began first go on. By the numbers of the threads instead, a job whose thread has a high number would wait although
//! no other is worked on, and new jobs of other threads would overtake it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::os::waited_for_processor;

/// The interval of looks at the pressure.
const LOOK: Duration = Duration::from_secs(1);
/// How long a number of jobs is kept before one more is worked on.
const HOLD: Duration = Duration::from_secs(10);
/// The share of the time in which something waits for a processor: above the first jobs pause, below the second more are worked on.
const WAIT_SHARE_MAX: f64 = 0.10;
const WAIT_SHARE_LOW: f64 = 0.02;
/// The pause between looks of a thread whose job may not be worked on.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

const _: () = {
    // A number is kept for several looks.
    assert!(4 * LOOK.as_millis() <= HOLD.as_millis());
};

/// The jobs that may be worked on.
pub(super) struct Pace {
    threads: usize,
    working: AtomicUsize,
    /// The numbers of the jobs that have begun, in their order.
    begun: Mutex<BTreeSet<u64>>,
    last: Mutex<Last>,
    /// How long something has waited for a processor since the machine started; `None` where that is not told.
    waited: fn() -> Option<Duration>,
}

struct Last {
    look: Instant,
    waited: Option<Duration>,
    change: Instant,
}

impl Pace {
    /// As many as there are threads at first. If `gives_way`, fewer do while programs wait.
    pub fn new(threads: usize, gives_way: bool) -> Self {
        Self::with(threads, if gives_way { waited_for_processor } else { || None })
    }

    fn with(threads: usize, waited: fn() -> Option<Duration>) -> Self {
        let now = Instant::now();
        let last = Mutex::new(Last { look: now, waited: waited(), change: now });
        Self { threads, working: AtomicUsize::new(threads), begun: Mutex::default(), last, waited }
    }

    /// Begins a job, behind those that have begun.
    pub fn begin(&self) -> Turn<'_> {
        let mut begun = self.begun.lock();
        let number = begun.last().map_or(0, |last| last + 1);
        begun.insert(number);
        Turn { pace: self, number }
    }

    /// Looks at the pressure, if the last look was long ago.
    fn look(&self, now: Instant) {
        // Another thread looks.
        let Some(mut last) = self.last.try_lock() else { return };
        let elapsed = now.saturating_duration_since(last.look);
        if elapsed < LOOK {
            return;
        }
        let waited = (self.waited)();
        let before = std::mem::replace(&mut last.waited, waited);
        last.look = now;
        let (Some(before), Some(waited)) = (before, waited) else { return };
        let share = waited.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64();
        let working = self.working.load(Ordering::Relaxed);
        let next = match share {
            _ if share > WAIT_SHARE_MAX => working / 2,
            _ if share < WAIT_SHARE_LOW && now.saturating_duration_since(last.change) >= HOLD => {
                (working + 1).min(self.threads)
            }
            _ => return,
        };
        last.change = now;
        self.working.store(next, Ordering::Relaxed);
    }
}

/// The place of a job among those that have begun, until it ends.
pub(super) struct Turn<'a> {
    pace: &'a Pace,
    number: u64,
}

impl Turn<'_> {
    /// Whether the job may be worked on now.
    pub fn may_work(&self) -> bool {
        self.pace.look(Instant::now());
        let earlier = self.pace.begun.lock().range(..self.number).count();
        earlier < self.pace.working.load(Ordering::Relaxed)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pace.begun.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Microseconds. Each test has its own thread, and so its own pressure.
        static WAITED_US: Cell<u64> = const { Cell::new(0) };
    }

    /// One second in which some process waits for the given share of it, seen by a job.
    async fn pass(turn: &Turn<'_>, share: f64) {
        tokio::time::advance(LOOK).await;
        WAITED_US.set(WAITED_US.get() + (share * LOOK.as_micros() as f64) as u64);
        turn.may_work();
    }

    fn pace(threads: usize) -> Pace {
        Pace::with(threads, || Some(Duration::from_micros(WAITED_US.get())))
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_pause_by_halves_while_programs_wait_and_return_one_by_one() {
        let pace = pace(4);
        let turns: Vec<_> = (0..4).map(|_| pace.begin()).collect();
        let working = || turns.iter().filter(|turn| turn.may_work()).count();
        let after = async |seconds: u64, share: f64| {
            for _ in 0..seconds {
                pass(&turns[0], share).await;
            }
            working()
        };
        assert_eq!(working(), 4);
        assert_eq!(after(1, 0.5).await, 2);
        assert_eq!(after(1, 0.5).await, 1);
        assert_eq!(after(5, 0.5).await, 0);
        // Neither quiet nor busy: it stays.
        assert_eq!(after(60, 0.05).await, 0);
        assert_eq!(after(1, 0.0).await, 1);
        assert_eq!(after(9, 0.0).await, 1);
        assert_eq!(after(1, 0.0).await, 2);
        assert_eq!(after(60, 0.0).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn while_one_job_may_be_worked_on_the_one_that_began_first_is_and_later_ones_follow_in_order() {
        let pace = pace(4);
        let [first, second, third] = [pace.begin(), pace.begin(), pace.begin()];
        pass(&first, 0.5).await;
        pass(&first, 0.5).await;
        let may = |turns: &[&Turn<'_>]| turns.iter().map(|turn| turn.may_work()).collect::<Vec<_>>();
        assert_eq!(may(&[&first, &second, &third]), [true, false, false]);
        drop(first);
        let fourth = pace.begin();
        assert_eq!(may(&[&second, &third, &fourth]), [true, false, false]);
        // One that ends before its turn leaves no gap.
        drop(third);
        drop(second);
        let fifth = pace.begin();
        assert_eq!(may(&[&fourth, &fifth]), [true, false]);
        drop(fifth);
        drop(fourth);
        assert!(pace.begin().may_work());
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_that_give_no_way_and_machines_without_pressure_information_do_not_pause() {
        let pace = Pace::new(2, false);
        let turns = [pace.begin(), pace.begin()];
        for _ in 0..5 {
            tokio::time::advance(LOOK).await;
            assert!(turns.iter().all(Turn::may_work));
        }
    }
}
