//! Times when the sending thread did not run, as `cheetah probe` notes them: see `send/stalls.rs` of the crate cheetah-probe.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::clock::{now_ns, sleep_until, thread_ns};

/// The shortest stall between two readings of the clock that is noted.
const STALL_NS: u64 = 20_000;
/// Waking up may take this long without being a stall.
const WAKE_NS: u64 = 300_000;
const RUN_QUEUE: &str = "/proc/thread-self/schedstat";

/// Watches the calling thread during a train.
pub struct Watch {
    run_queue: Option<File>,
    before: [u64; 3],
    last_ns: u64,
    host_ns: u64,
}

impl Watch {
    /// Begins to watch.
    pub fn begin() -> Self {
        let mut watch = Self { run_queue: File::open(RUN_QUEUE).ok(), before: [0; 3], last_ns: 0, host_ns: 0 };
        watch.resume();
        watch
    }

    /// Returns the longest time for which the host kept the thread from running; `None` if that is not known.
    pub fn host_ns(&self) -> Option<u64> {
        self.run_queue.as_ref().map(|_| self.host_ns)
    }

    /// Tells of a clock reading. The thread has not slept since the last one.
    pub fn reads(&mut self, now_ns: u64) {
        let stall_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        if stall_ns >= STALL_NS {
            let [passed, computed, queued] = self.passed();
            self.note(stall_ns, passed.saturating_sub(computed), queued);
        }
    }

    /// Spins until `due_ns`.
    pub fn spin(&mut self, due_ns: u64) {
        self.last_ns = now_ns();
        while self.last_ns < due_ns {
            std::hint::spin_loop();
            self.reads(now_ns());
        }
    }

    /// Sleeps until `due_ns`, unless that has passed.
    pub fn sleep(&mut self, due_ns: u64) {
        if now_ns() >= due_ns {
            return;
        }
        // Read before the sleep: what is due afterwards does not wait for it.
        self.before[2] = self.queued_ns();
        sleep_until(due_ns);
        let woke_ns = now_ns();
        let late_ns = woke_ns.saturating_sub(due_ns);
        if late_ns > WAKE_NS {
            let [_, _, queued] = self.passed();
            self.note(late_ns, late_ns, queued);
        } else {
            self.before = [woke_ns, thread_ns(), self.before[2]];
            self.last_ns = woke_ns;
        }
    }

    /// Adds a stall during which the thread did not run for `lost_ns`, `queued_ns` of it because another thread did.
    fn note(&mut self, stall_ns: u64, lost_ns: u64, queued_ns: u64) {
        let host_ns = lost_ns.min(stall_ns).saturating_sub(queued_ns);
        if host_ns >= STALL_NS {
            self.host_ns = self.host_ns.max(host_ns);
        }
        self.resume();
    }

    fn resume(&mut self) {
        self.before = self.clocks();
        self.last_ns = now_ns();
    }

    fn passed(&self) -> [u64; 3] {
        let now = self.clocks();
        std::array::from_fn(|nth| now[nth].saturating_sub(self.before[nth]))
    }

    /// The time, the thread's processor time, and its time in the run queue.
    fn clocks(&self) -> [u64; 3] {
        let queued_ns = self.queued_ns();
        let computed_ns = thread_ns();
        [now_ns(), computed_ns, queued_ns]
    }

    fn queued_ns(&self) -> u64 {
        self.run_queue.as_ref().and_then(queued_ns).unwrap_or_default()
    }
}

fn queued_ns(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let bytes = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..bytes)?).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
