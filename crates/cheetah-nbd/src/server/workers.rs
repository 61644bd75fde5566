//! Threads that serve connections.

use std::cell::Cell;
use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cheetah_device::supervise::panic_point;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long a thread lets requests gather before it goes to sleep: two or three of a client that makes one every 7 µs,
/// and no more than what waking up takes anyway.
const GATHER: Duration = Duration::from_micros(15);
/// How much later than asked the kernel may end that, in nanoseconds; 50,000 unless told otherwise.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN.saturating_add(999);

thread_local! {
    /// Whether some connection on this thread would rather have its requests gather.
    static GATHERING: Cell<bool> = const { Cell::new(false) };
}

/// The next time this thread has nothing to do, it lets requests gather for a moment before it listens again.
/// Without effect on threads other than [`Workers`]'.
pub(super) fn gather() {
    GATHERING.set(true);
}

/// A set of threads, each with an event loop of its own.
///
/// A connection stays on one of them: its requests are read, answered and sent without a hand-over between
/// threads, each of which would cost a wake-up.
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
    /// The operating system's, where it has no thread or file handle left.
    pub fn start(name: &str, count: NonZeroUsize) -> io::Result<Self> {
        let threads = (0..count.get()).map(|_| Worker::start(name)).collect::<io::Result<_>>()?;
        Ok(Self { threads, next: AtomicUsize::new(0) })
    }

    /// One thread for each processor, at most four: memory, not the processor, is the limit beyond.
    pub fn count_default() -> NonZeroUsize {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        cores.min(NonZeroUsize::new(4).unwrap_or(NonZeroUsize::MIN))
    }

    /// The runtime for the next connection, in turn.
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
            // Where it is not possible, gathering takes somewhat longer.
            let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
            // Stopped by message or by the sender's end; both mean the same.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { runtime: handle, stop: Some(stop), thread: Some(thread) })
    }
}

/// What a thread does before it sleeps.
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
