//! How many jobs are worked on: fewer while threads of this machine wait for a processor.
//!
//! The kernel's idle class keeps the threads behind all others, but not out of their way: a thread that is about to be displaced delays
//! them a little, and its content displaces theirs from caches. So the jobs pause as the congestion windows of TCP do: the half of
//! them at once while something waits, and one more after a while in which hardly anything does (pressure stall information,
//! Documentation/accounting/psi.rst of Linux). The node's own threads that wait count, too: then other programs have the processors.
//! On a kernel that does not tell this, the time stands for it that other programs have processors beyond all but one: less of it leaves
//! a processor free, so that nothing waits.
//!
//! A thread of its own looks at the pressure, outside the idle class: on a busy machine, threads of that class run about once a second,
//! and would notice a second late that they are in the way. It sleeps while there are no jobs. Threads whose jobs pause wake up
//! seldom; where all processors are busy they then wait for one, which is pressure, so that no job begins again.
//!
//! The jobs that began first go on. By the numbers of the threads instead, a job whose thread has a high number would wait although
//! no other is worked on, and new jobs of other threads would overtake it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::os::{Need, need_of_processors};

/// The interval of looks at the pressure, while there are jobs.
const LOOK: Duration = Duration::from_millis(100);
/// The time over which less pressure than at one look tells something.
const WINDOW: Duration = Duration::from_secs(1);
/// How long it must be quiet before one more job is worked on.
const HOLD: Duration = Duration::from_secs(10);
/// The share of the time between two looks in which something waits for a processor: above it, jobs pause.
const LOOK_SHARE_MAX: f64 = 0.50;
/// The same of a window.
const WINDOW_SHARE_MAX: f64 = 0.10;
/// A window is quiet below this share.
const WINDOW_SHARE_QUIET: f64 = 0.02;
/// The pause between looks of a thread whose job may not be worked on. It is also woken when that changes.
const PAUSE: Duration = Duration::from_secs(1);

const _: () = {
    assert!(2 * LOOK.as_millis() <= WINDOW.as_millis());
    // It is quiet for several windows.
    assert!(4 * WINDOW.as_millis() <= HOLD.as_millis());
};

/// The jobs that may be worked on.
pub(super) struct Pace {
    threads: usize,
    state: Mutex<State>,
    /// Signalled when the first job begins, and at the end.
    begins: Condvar,
    /// Signalled when other jobs may be worked on.
    changed: Condvar,
    looks: Mutex<Option<Looks>>,
    /// How long something has needed a processor since the machine started; `None` where that is not told.
    waited: fn() -> Option<Duration>,
    gives_way: bool,
}

struct State {
    /// The numbers of the jobs that have begun, in their order.
    begun: BTreeSet<u64>,
    /// The number of jobs that may be worked on.
    working: usize,
    is_ended: bool,
}

impl Pace {
    /// As many as there are threads at first. If `gives_way`, fewer do while programs wait.
    pub fn new(threads: usize, gives_way: bool) -> Self {
        let need = gives_way.then(need_of_processors).flatten();
        Self { gives_way, ..Self::with(threads, need.unwrap_or(Need { reading: || None, without_waiting: 0 })) }
    }

    fn with(threads: usize, Need { reading: waited, without_waiting }: Need) -> Self {
        let state = State { begun: BTreeSet::new(), working: threads, is_ended: false };
        let looks = waited().map(|waited| Looks::new(Instant::now(), waited, without_waiting));
        Self {
            threads,
            state: Mutex::new(state),
            begins: Condvar::new(),
            changed: Condvar::new(),
            looks: Mutex::new(looks),
            waited,
            gives_way: true,
        }
    }

    /// Whether there is a pressure to look at.
    pub fn looks(&self) -> bool {
        self.looks.lock().is_some()
    }

    /// Whether jobs are to pause while programs wait, and nothing shows when these do.
    pub fn is_blind(&self) -> bool {
        self.gives_way && !self.looks()
    }

    /// Looks at the pressure while there are jobs, until the end.
    pub fn watch(&self) {
        loop {
            let mut state = self.state.lock();
            while state.begun.is_empty() && !state.is_ended {
                self.begins.wait(&mut state);
            }
            if !state.is_ended {
                self.begins.wait_for(&mut state, LOOK);
            }
            if state.is_ended {
                return;
            }
            drop(state);
            self.look(Instant::now());
        }
    }

    /// Begins a job, behind those that have begun.
    pub fn begin(&self) -> Turn<'_> {
        let mut state = self.state.lock();
        let number = state.begun.last().map_or(0, |last| last + 1);
        state.begun.insert(number);
        drop(state);
        self.begins.notify_all();
        Turn { pace: self, number }
    }

    /// Wakes the threads whose jobs pause: one was cancelled.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Ends the looks.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.begins.notify_all();
        self.wake();
    }

    fn look(&self, now: Instant) {
        let Some(waited) = (self.waited)() else { return };
        let mut looks = self.looks.lock();
        let Some(looks) = looks.as_mut() else { return };
        let mut state = self.state.lock();
        state.working = looks.decide(now, waited, state.working, self.threads);
        drop(state);
        self.wake();
    }
}

/// The looks at the pressure so far. Each has its time, and how long something had waited then since the machine started.
struct Looks {
    last: (Instant, Duration),
    /// The begin of the window.
    window: (Instant, Duration),
    /// Since when it has been quiet, and the number of jobs the same.
    quiet: Instant,
    /// How much of that time passes in each second in which nothing waits, in seconds.
    without_waiting: f64,
}

impl Looks {
    fn new(now: Instant, waited: Duration, without_waiting: u32) -> Self {
        let without_waiting = f64::from(without_waiting);
        Self { last: (now, waited), window: (now, waited), quiet: now, without_waiting }
    }

    /// The number of jobs that may be worked on after a look.
    fn decide(&mut self, now: Instant, waited: Duration, working: usize, threads: usize) -> usize {
        let since = |at: Instant| now.saturating_duration_since(at);
        // A share of less time is chance.
        if since(self.last.0) < LOOK {
            return working;
        }
        let without_waiting = self.without_waiting;
        let share = |(at, before): (Instant, Duration)| {
            let grown = waited.saturating_sub(before).as_secs_f64() / since(at).as_secs_f64();
            (grown - without_waiting).max(0.0)
        };
        let look_share = share(self.last);
        self.last = (now, waited);
        let window_share = (since(self.window.0) >= WINDOW).then(|| share(self.window));
        if let Some(share) = window_share {
            self.window = (now, waited);
            if share >= WINDOW_SHARE_QUIET {
                self.quiet = now;
            }
        }
        let next = decided(working, threads, Pressure { look_share, window_share, quiet: since(self.quiet) });
        if next != working {
            // What waited for these jobs tells nothing of those that are left.
            self.window = (now, waited);
            self.quiet = now;
        }
        next
    }
}

/// What a look shows.
#[derive(Clone, Copy)]
struct Pressure {
    /// The share of the time since the last look in which something waited.
    look_share: f64,
    /// The same of a window, when one is over.
    window_share: Option<f64>,
    /// How long it has been quiet.
    quiet: Duration,
}

/// The number of jobs to work on, of as many as there are `threads`: half of those that were worked on while something waits, and one more
/// for each [`HOLD`] in which it was quiet.
fn decided(working: usize, threads: usize, pressure: Pressure) -> usize {
    let is_pressed =
        pressure.look_share > LOOK_SHARE_MAX || pressure.window_share.is_some_and(|share| share > WINDOW_SHARE_MAX);
    if is_pressed {
        return working / 2;
    }
    let more = pressure.quiet.as_secs() / HOLD.as_secs();
    working.saturating_add(usize::try_from(more).unwrap_or(usize::MAX)).min(threads)
}

/// The place of a job among those that have begun, until it ends.
pub(super) struct Turn<'a> {
    pace: &'a Pace,
    number: u64,
}

impl Turn<'_> {
    /// Returns when the job may be worked on, or is cancelled.
    pub fn wait(&self, is_cancelled: impl Fn() -> bool) {
        let mut state = self.pace.state.lock();
        while !self.may_work(&state) && !is_cancelled() {
            self.pace.changed.wait_for(&mut state, PAUSE);
        }
    }

    fn may_work(&self, state: &State) -> bool {
        state.begun.range(..self.number).count() < state.working
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pace.state.lock().begun.remove(&self.number);
        self.pace.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn pace(threads: usize) -> Pace {
        Pace::with(threads, Need { reading: || Some(Duration::ZERO), without_waiting: 0 })
    }

    /// Which of the jobs may be worked on, if as many may.
    fn may(pace: &Pace, working: usize, turns: &[&Turn<'_>]) -> Vec<bool> {
        let mut state = pace.state.lock();
        state.working = working;
        turns.iter().map(|turn| turn.may_work(&state)).collect()
    }

    #[test]
    fn half_of_the_jobs_pause_while_something_waits_and_one_more_is_worked_on_for_each_time_of_quiet() {
        let second = |share| Some(share);
        let cases = [
            // Jobs of four threads; the shares of a look and of a window; seconds of quiet; jobs afterwards.
            (4, 0.0, None, 0, 4),
            (4, 0.51, None, 0, 2),
            (2, 1.0, None, 60, 1),
            (1, 1.0, second(1.0), 0, 0),
            (0, 1.0, second(1.0), 0, 0),
            // A short burst, and one that goes on.
            (4, 0.49, None, 0, 4),
            (4, 0.2, second(0.09), 0, 4),
            (4, 0.2, second(0.11), 0, 2),
            (4, 0.0, second(0.11), 60, 2),
            // Quiet.
            (0, 0.0, second(0.0), 9, 0),
            (0, 0.0, second(0.0), 10, 1),
            (1, 0.0, None, 19, 2),
            (1, 0.0, None, 20, 3),
            (1, 0.0, None, 3600, 4),
            (4, 0.0, None, 3600, 4),
        ];
        for (number, (working, look_share, window_share, quiet_s, expected)) in cases.into_iter().enumerate() {
            let pressure = Pressure { look_share, window_share, quiet: Duration::from_secs(quiet_s) };
            assert_eq!(decided(working, 4, pressure), expected, "case {number}");
        }
    }

    /// A machine whose time is made.
    struct Machine {
        now: Instant,
        waited: Duration,
        looks: Looks,
        working: usize,
    }

    impl Machine {
        fn new(working: usize) -> Self {
            Self::without_waiting(working, 0)
        }

        fn without_waiting(working: usize, without_waiting: u32) -> Self {
            let now = Instant::now();
            Self { now, waited: Duration::ZERO, looks: Looks::new(now, Duration::ZERO, without_waiting), working }
        }

        /// The number of jobs after this time, in which something waits for this share of it. Looks are `LOOK` apart.
        fn after(&mut self, time: Duration, share: f64) -> usize {
            for _ in 0..time.as_millis() / LOOK.as_millis() {
                self.pass(LOOK, share);
            }
            self.working
        }

        fn pass(&mut self, time: Duration, share: f64) -> usize {
            self.now += time;
            self.waited += time.mul_f64(share);
            self.working = self.looks.decide(self.now, self.waited, self.working, 4);
            self.working
        }
    }

    #[test]
    fn programs_that_take_every_processor_have_it_after_three_looks_and_until_they_have_been_quiet_for_a_while() {
        let mut machine = Machine::new(4);
        assert_eq!(machine.after(60 * S, 0.0), 4);
        assert_eq!([1, 2, 3].map(|_| machine.after(LOOK, 1.0)), [2, 1, 0]);
        assert_eq!(machine.after(60 * S, 1.0), 0);
        // Neither quiet nor busy: it stays.
        assert_eq!(machine.after(60 * S, 0.05), 0);
        assert_eq!(machine.after(9 * S, 0.0), 0);
        assert_eq!(machine.after(2 * S, 0.0), 1);
        assert_eq!(machine.after(8 * S, 0.0), 1);
        assert_eq!(machine.after(60 * S, 0.0), 4);
    }

    #[test]
    fn what_waited_before_half_of_the_jobs_paused_does_not_let_more_of_them_pause() {
        let mut machine = Machine::new(4);
        machine.after(S / 2, 0.0);
        assert_eq!(machine.after(LOOK, 0.9), 2);
        assert_eq!(machine.after(5 * S, 0.0), 2);
    }

    #[test]
    fn where_only_the_time_of_others_is_told_jobs_pause_once_these_leave_no_processor() {
        // Two processors. Others have a tenth of one, all of one, and both.
        let mut machine = Machine::without_waiting(0, 1);
        assert_eq!(machine.after(60 * S, 0.1), 4);
        assert_eq!(machine.after(60 * S, 1.0), 4);
        assert_eq!(machine.after(60 * S, 2.0), 0);
        assert_eq!(machine.after(60 * S, 0.1), 4);
    }

    #[test]
    fn a_little_pressure_lets_jobs_pause_once_a_second() {
        let mut machine = Machine::new(4);
        assert_eq!(machine.after(9 * LOOK, 0.2), 4);
        assert_eq!(machine.after(LOOK, 0.2), 2);
        assert_eq!(machine.after(9 * LOOK, 0.2), 2);
        assert_eq!(machine.after(LOOK, 0.2), 1);
    }

    #[test]
    fn a_long_time_without_jobs_counts_as_one_look() {
        let mut machine = Machine::new(1);
        assert_eq!(machine.pass(600 * S, 0.0), 4);
        assert_eq!(machine.pass(600 * S, 0.2), 2);
        // Two looks at once: the second one tells nothing.
        assert_eq!(machine.pass(LOOK / 100, 1.0), 2);
    }

    #[test]
    fn while_one_job_may_be_worked_on_the_one_that_began_first_is_and_later_ones_follow_in_order() {
        let pace = pace(4);
        let [first, second, third] = [pace.begin(), pace.begin(), pace.begin()];
        assert_eq!(may(&pace, 1, &[&first, &second, &third]), [true, false, false]);
        drop(first);
        let fourth = pace.begin();
        assert_eq!(may(&pace, 1, &[&second, &third, &fourth]), [true, false, false]);
        // One that ends before its turn leaves no gap.
        drop(third);
        drop(second);
        let fifth = pace.begin();
        assert_eq!(may(&pace, 1, &[&fourth, &fifth]), [true, false]);
        assert_eq!(may(&pace, 0, &[&fourth, &fifth]), [false, false]);
        drop(fifth);
        drop(fourth);
        assert_eq!(may(&pace, 1, &[&pace.begin()]), [true]);
    }

    #[test]
    fn a_job_that_pauses_waits_until_it_may_be_worked_on_or_is_cancelled() {
        let pace = pace(1);
        let (first, second) = (pace.begin(), pace.begin());
        let is_cancelled = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| second.wait(|| is_cancelled.load(Ordering::Relaxed)));
            is_cancelled.store(true, Ordering::Relaxed);
            pace.wake();
            waiting.join().unwrap();
        });
        thread::scope(|scope| {
            let waiting = scope.spawn(|| second.wait(|| false));
            drop(first);
            waiting.join().unwrap();
        });
    }

    #[test]
    fn the_looks_end_with_and_without_jobs() {
        for has_job in [false, true] {
            let pace = pace(1);
            let _turn = has_job.then(|| pace.begin());
            thread::scope(|scope| {
                let watching = scope.spawn(|| pace.watch());
                pace.end();
                watching.join().unwrap();
            });
        }
    }

    #[test]
    fn jobs_that_give_no_way_and_machines_without_pressure_information_do_not_pause() {
        let nothing = Need { reading: || None, without_waiting: 0 };
        for (pace, is_blind) in [(Pace::new(2, false), false), (Pace::with(2, nothing), true)] {
            assert_eq!((pace.looks(), pace.is_blind()), (false, is_blind));
            let turns = [pace.begin(), pace.begin()];
            pace.look(Instant::now() + 60 * S);
            turns.iter().for_each(|turn| turn.wait(|| false));
        }
        assert!(!pace(1).is_blind());
    }
}
