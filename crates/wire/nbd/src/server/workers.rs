//! The threads that serve connections.

use std::cell::Cell;
use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cheetah_device::supervise::panic_point;
use cheetah_kit::thread::{HAS_SHORT_PAUSES, set_timer_slack_ns};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long a thread lets requests gather: two or three of a client that sends one every 7 µs, and no longer than a wake-up
/// takes.
const GATHER: Duration = Duration::from_micros(15);
/// The kernel's timer slack for that, in nanoseconds; the default is 50,000.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN.saturating_add(999);

thread_local! {
    /// Whether a connection of this thread wants its requests to gather.
    static GATHERING: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread pause before it next sleeps, so that requests gather. No effect on threads outside [`Workers`], nor where
/// pauses are long.
pub(super) fn gather() {
    GATHERING.set(HAS_SHORT_PAUSES);
}

/// Threads with an event loop each.
///
/// A connection stays on one of them, so that no request costs the wake-up of another thread.
pub struct Workers {
    threads: Vec<Worker>,
    next: AtomicUsize,
}

struct Worker {
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads named `name`.
    ///
    /// # Errors
    ///
    /// The operating system's, such as no thread or file handle left.
    pub fn start(name: &str, count: NonZeroUsize) -> io::Result<Self> {
        let threads = (0..count.get()).map(|_| Worker::start(name)).collect::<io::Result<_>>()?;
        Ok(Self { threads, next: AtomicUsize::new(0) })
    }

    /// One thread per processor, at most four: beyond that, memory bandwidth is the bottleneck.
    pub fn count_default() -> NonZeroUsize {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        cores.min(NonZeroUsize::new(4).unwrap_or(NonZeroUsize::MIN))
    }

    /// The runtime for the next connection, round-robin.
    pub fn next(&self) -> Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.threads[turn % self.threads.len()].runtime.clone()
    }
}

impl Worker {
    fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().on_thread_park(park).build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Where it has no effect, gathering takes longer.
            set_timer_slack_ns(TIMER_SLACK_NS);
            // The sender is only dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { runtime: handle, stop: Some(stop), thread: Some(thread) })
    }
}

/// Runs before a thread sleeps.
fn park() {
    panic_point("nbd-worker");
    if GATHERING.replace(false) {
        std::thread::sleep(GATHER);
    }
}

impl Drop for Workers {
    /// Stops the threads and waits for them; connections they serve are cut.
    fn drop(&mut self) {
        for worker in &mut self.threads {
            worker.stop.take();
        }
        for worker in &mut self.threads {
            if let Some(thread) = worker.thread.take()
                && thread.thread().id() != std::thread::current().id()
            {
                let _ = thread.join();
            }
        }
    }
}
