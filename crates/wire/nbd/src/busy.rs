//! Staying awake between requests.
//!
//! A client that sends one request, waits for the answer and sends the next (depth 1) leaves both sides
//! idle in between, so each hop pays for waking a halted processor: some 20 µs on a virtual machine, more than
//! all the work of the request. [`touch`] keeps the calling runtime polling its sockets for [`SPIN_US`] after
//! such a request instead of going to sleep. Each iteration yields the processor first, so that other threads can run;
//! without the yield, the scheduler places the client behind the spinning thread and latency rises. At depth, spinning only
//! costs processor time: callers use it for connections with one request in flight at a time.
//!
//! With one processor, the other side cannot run while this one polls, so nothing polls there.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

/// How long a runtime stays awake after a small request: a little more than the round trip it hopes to shorten.
pub const SPIN_US: u64 = 80;

/// Whether another processor can run the other side meanwhile.
static HELPS: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1));

/// The spinner of each runtime that has one.
static SPINNERS: Mutex<Vec<(Id, Weak<Spinner>)>> = Mutex::new(Vec::new());

thread_local! {
    /// The spinner this thread touched last.
    static SPINNER: RefCell<Option<(Id, Arc<Spinner>)>> = const { RefCell::new(None) };
}

struct Spinner {
    until: Mutex<Instant>,
    spinning: AtomicBool,
    wake: Notify,
}

/// Keeps the current runtime awake for the next [`SPIN_US`]. Does nothing outside a runtime, or with one processor.
pub fn touch() {
    if !*HELPS {
        return;
    }
    let Ok(runtime) = Handle::try_current() else { return };
    SPINNER.with_borrow_mut(|known| match known {
        Some((id, spinner)) if *id == runtime.id() => spinner.touch(),
        _ => {
            let spinner = Spinner::of(&runtime);
            spinner.touch();
            *known = Some((runtime.id(), spinner));
        }
    });
}

impl Spinner {
    /// The runtime's spinner; there is one, however many threads the runtime has.
    fn of(runtime: &Handle) -> Arc<Self> {
        let mut spinners = SPINNERS.lock();
        spinners.retain(|(_, spinner)| spinner.strong_count() > 0);
        let known = spinners.iter().find(|(id, _)| *id == runtime.id());
        if let Some(spinner) = known.and_then(|(_, spinner)| spinner.upgrade()) {
            return spinner;
        }
        let spinner = Self::spawn(runtime);
        spinners.push((runtime.id(), Arc::downgrade(&spinner)));
        spinner
    }

    fn spawn(runtime: &Handle) -> Arc<Self> {
        let spinner =
            Arc::new(Self { until: Mutex::new(Instant::now()), spinning: AtomicBool::new(false), wake: Notify::new() });
        let mine = Arc::clone(&spinner);
        runtime.spawn(async move {
            loop {
                mine.wake.notified().await;
                while Instant::now() < *mine.until.lock() {
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                }
                mine.spinning.store(false, Ordering::Release);
            }
        });
        spinner
    }

    fn touch(&self) {
        *self.until.lock() = Instant::now() + Duration::from_micros(SPIN_US);
        if !self.spinning.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }
}
