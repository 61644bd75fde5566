//! How many of the threads work: fewer while programs of this machine's owner wait for a processor.
//!
//! The kernel's idle class keeps the threads behind all others, but not out of their way: a thread that is about to be displaced delays
//! them a little, and its content displaces theirs from caches. So the threads pause as the congestion windows of TCP do: the half of
//! them at once while something waits, and one more after a while in which hardly anything does (pressure stall information,
//! Documentation/accounting/psi.rst of Linux).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The interval of looks at the pressure.
const LOOK: Duration = Duration::from_secs(1);
/// How long a number of threads is kept before one more works.
const HOLD: Duration = Duration::from_secs(10);
/// The share of the time in which something waits for a processor: above the first threads pause, below the second more work.
const WAIT_SHARE_MAX: f64 = 0.10;
const WAIT_SHARE_LOW: f64 = 0.02;
/// The pause between looks of a thread that may not work.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

const _: () = {
    // A number is kept for several looks.
    assert!(4 * LOOK.as_millis() <= HOLD.as_millis());
};

/// The threads that may work.
pub(super) struct Pace {
    threads: usize,
    working: AtomicUsize,
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
    /// All threads work at first. If `gives_way`, fewer do while programs wait.
    pub fn new(threads: usize, gives_way: bool) -> Self {
        Self::with(threads, if gives_way { waited } else { || None })
    }

    fn with(threads: usize, waited: fn() -> Option<Duration>) -> Self {
        let now = Instant::now();
        let last = Mutex::new(Last { look: now, waited: waited(), change: now });
        Self { threads, working: AtomicUsize::new(threads), last, waited }
    }

    /// Whether a thread, of which there are fewer with smaller numbers, may work now.
    pub fn may_work(&self, thread: usize) -> bool {
        self.look(Instant::now());
        thread < self.working.load(Ordering::Relaxed)
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

/// How long some process has waited for a processor since the machine started, by `/proc/pressure/cpu`.
fn waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    crate::pressure::stalled_us(&text).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Microseconds; each test has its own thread, and so would each have its own pressure.
    static WAITED_US: AtomicU64 = AtomicU64::new(0);

    #[tokio::test(start_paused = true)]
    async fn threads_pause_by_halves_while_programs_wait_and_return_one_by_one() {
        let pace = Pace::with(4, || Some(Duration::from_micros(WAITED_US.load(Ordering::Relaxed))));
        let working = || (0..4).filter(|thread| pace.may_work(*thread)).count();
        let pass = async |seconds: u64, share: f64| {
            for _ in 0..seconds {
                tokio::time::advance(LOOK).await;
                WAITED_US.fetch_add((share * LOOK.as_micros() as f64) as u64, Ordering::Relaxed);
                working();
            }
            working()
        };
        assert_eq!(working(), 4);
        assert_eq!(pass(1, 0.5).await, 2);
        assert_eq!(pass(1, 0.5).await, 1);
        assert_eq!(pass(5, 0.5).await, 0);
        // Neither quiet nor busy: it stays.
        assert_eq!(pass(60, 0.05).await, 0);
        assert_eq!(pass(1, 0.0).await, 1);
        assert_eq!(pass(9, 0.0).await, 1);
        assert_eq!(pass(1, 0.0).await, 2);
        assert_eq!(pass(60, 0.0).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn threads_that_give_no_way_and_machines_without_pressure_information_do_not_pause() {
        let pace = Pace::new(2, false);
        for _ in 0..5 {
            tokio::time::advance(LOOK).await;
            assert!(pace.may_work(0) && pace.may_work(1));
        }
    }
}
