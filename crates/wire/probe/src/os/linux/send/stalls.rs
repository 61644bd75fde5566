//! Times during a train when the sending thread did not run: because the host of this virtual machine ran something else, or because
//! another thread did.
//!
//! A thread that spins reads the clock many times a microsecond, so two readings far apart show a stall. The thread's processor time
//! (`CLOCK_THREAD_CPUTIME_ID`) does not pass while it does not run; under a hypervisor the kernel subtracts stolen time from it. The
//! second number of `/proc/thread-self/schedstat` is the time in the run queue (Linux `Documentation/scheduler/sched-stats.rst`). A
//! stall without either was the host's. Interrupts of this machine count as processor time, and are not noted.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::quiet::Pause;
use crate::clock::Nanos;
use crate::send::Stalls;

/// The shortest stall that is noted: the clock is read far more often, and ticks of the kernel take less.
const STALL: Duration = Duration::from_micros(20);
/// How long waking up may take without being a stall.
const WAKE: Duration = Duration::from_micros(300);
/// The shortest pause of spinning that is noted, and the most of a train.
const PAUSE: Duration = Duration::from_micros(3);
const PAUSES_MAX: usize = 64;
const RUN_QUEUE: &str = "/proc/thread-self/schedstat";

/// Readings of the clocks of a thread, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Clocks {
    passed: u64,
    computed: u64,
    queued: u64,
}

/// Watches the calling thread during a train.
pub(super) struct StallWatch {
    run_queue: Option<File>,
    since: Clocks,
    last: Nanos,
    /// The last reading in a loop that does nothing else.
    spun: Option<Nanos>,
    longest: Stalls,
    pauses: Vec<Pause>,
}

impl StallWatch {
    /// Begins to watch the calling thread.
    pub(super) fn begin() -> Self {
        let run_queue = File::open(RUN_QUEUE).ok().filter(|file| queued_ns(file).is_some());
        let (since, last, longest) = (Clocks::default(), Nanos::now(), Stalls::default());
        let mut watch = Self { run_queue, since, last, spun: None, longest, pauses: Vec::with_capacity(PAUSES_MAX) };
        watch.resume();
        watch
    }

    /// Returns the pauses of spinning, interrupts of this machine included.
    pub(super) fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    /// Notes that the thread begins to read the clock and do nothing else.
    pub(super) fn spins(&mut self) {
        self.spun = None;
    }

    /// Returns the longest stalls; `None` where the kernel does not tell.
    pub(super) fn end(self) -> Option<Stalls> {
        self.run_queue.map(|_| self.longest)
    }

    /// Notes a reading of the clock. The thread has not slept since the last one.
    pub(super) fn reads(&mut self, now: Nanos) {
        let stall = now.since(self.last);
        self.last = now;
        if let Some(from) = self.spun.replace(now).filter(|from| now.since(*from) >= PAUSE)
            && self.pauses.len() < PAUSES_MAX
        {
            self.pauses.push(Pause { from, to: now });
        }
        if stall >= STALL {
            let now = self.clocks();
            self.longest.note(stall, lost(self.since, now), now.queued.saturating_sub(self.since.queued));
            self.resume();
            self.spun = None;
        }
    }

    /// Notes that the thread woke up, and was to sleep until `due`.
    pub(super) fn woke(&mut self, due: Nanos) {
        let late = Nanos::now().since(due);
        if late > WAKE {
            let queued = self.clocks().queued.saturating_sub(self.since.queued);
            self.longest.note(late, ns(late), queued);
        }
        self.resume();
    }

    /// Goes on after the thread slept, or did something else than wait.
    pub(super) fn resume(&mut self) {
        self.since = self.clocks();
        self.last = Nanos::now();
    }

    fn clocks(&self) -> Clocks {
        let computed = clock_gettime(ClockId::ThreadCPUTime);
        let computed = u64::try_from(computed.tv_sec).unwrap_or_default() * 1_000_000_000
            + u64::try_from(computed.tv_nsec).unwrap_or_default();
        Clocks {
            passed: Nanos::now().0,
            computed,
            queued: self.run_queue.as_ref().and_then(queued_ns).unwrap_or_default(),
        }
    }
}

impl Stalls {
    /// Adds a stall of which the thread did not run for `lost_ns`, `queued_ns` of it because another thread did.
    fn note(&mut self, stall: Duration, lost_ns: u64, queued_ns: u64) {
        let (stall_ns, noted) = (ns(stall), |ns: u64| if ns >= self::ns(STALL) { ns } else { 0 });
        self.host_ns = self.host_ns.max(noted(lost_ns.min(stall_ns).saturating_sub(queued_ns)));
        self.threads_ns = self.threads_ns.max(noted(queued_ns.min(stall_ns)));
    }
}

/// The time between two readings in which the thread did not run.
fn lost(since: Clocks, now: Clocks) -> u64 {
    now.passed.saturating_sub(since.passed).saturating_sub(now.computed.saturating_sub(since.computed))
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the time that this thread has spent in the run queue.
fn queued_ns(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let bytes = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..bytes)?).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_testing::skip;

    #[test]
    fn a_stall_is_shared_out_among_host_and_threads() {
        let noted = |stall_us, lost_us: u64, queued_us: u64| {
            let mut stalls = Stalls::default();
            stalls.note(Duration::from_micros(stall_us), lost_us * 1000, queued_us * 1000);
            [stalls.host_ns / 1000, stalls.threads_ns / 1000]
        };
        // The thread ran: an interrupt.
        assert_eq!(noted(50, 2, 0), [0, 0]);
        assert_eq!(noted(50, 50, 0), [50, 0]);
        assert_eq!(noted(50, 50, 49), [0, 49]);
        assert_eq!(noted(500, 500, 100), [400, 100]);
        // What was lost before the stall is not the stall's.
        assert_eq!(noted(50, 90, 0), [50, 0]);
    }

    #[test]
    fn the_longest_stalls_of_a_train_are_kept() {
        let mut stalls = Stalls::default();
        for (stall_us, queued_us) in [(30, 0), (90, 0), (40, 0), (700, 700), (60, 60)] {
            stalls.note(Duration::from_micros(stall_us), stall_us * 1000, queued_us * 1000);
        }
        assert_eq!(stalls, Stalls { host_ns: 90_000, threads_ns: 700_000 });
    }

    #[test]
    fn a_thread_that_sleeps_longer_than_asked_is_noted_as_stalled() {
        // Before the watch begins, so that no time in the run queue is counted from before.
        let due = Nanos::now();
        let mut watch = StallWatch::begin();
        if watch.run_queue.is_none() {
            return skip("this kernel keeps no statistics of the scheduler");
        }
        std::thread::sleep(Duration::from_millis(3));
        watch.woke(due);
        let stalls = watch.end().unwrap();
        assert!(stalls.host_ns + stalls.threads_ns >= 3_000_000, "{stalls:?}");
    }
}
