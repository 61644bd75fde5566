//! Tests that measure times, on machines that may stall.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The maximum number of attempts.
const ATTEMPTS: u32 = 6;
/// A delay of a thread that is long enough to spoil a measurement.
const STALL: Duration = Duration::from_millis(2);
const NAP: Duration = Duration::from_millis(1);

/// Runs a test, and repeats it if it failed and the machine stalled meanwhile. A real defect fails each time.
pub fn steadily(test: impl Fn()) {
    for _ in 1..ATTEMPTS {
        let watch = Watch::start();
        let outcome = catch_unwind(AssertUnwindSafe(&test));
        let stalled = watch.end();
        match outcome {
            Ok(()) => return,
            Err(panic) if stalled < STALL => resume_unwind(panic),
            Err(_) => {
                let line = format!("the machine stalled for {stalled:?} during the test; it is repeated\n");
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        }
    }
    test();
}

/// A thread on each processor that polls the clock.
struct Watch {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
}

impl Watch {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let here = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let watching = (0..CpuSet::MAX_CPU).filter(|cpu| here.is_set(*cpu)).map(|cpu| {
            let over = Arc::clone(&over);
            spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                let _ = sched_setaffinity(None, &only);
                longest_gap(&over)
            })
        });
        let threads = watching.collect();
        Self { over, threads }
    }

    /// Returns the longest delay of any of these threads.
    fn end(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.threads.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    }
}

fn longest_gap(over: &AtomicBool) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    while !over.load(Ordering::Relaxed) {
        sleep(NAP);
        let now = Instant::now();
        longest = longest.max(now - last - NAP.min(now - last));
        last = now;
    }
    longest
}
