//! Containment of panics: a request, a connection, or the process in order.
//!
//! A panic is a defect of the program. It stops one thread or task; the rest of the process would carry on without it,
//! for instance a server that still answers on one port but no longer listens on another. So there are two kinds of
//! work:
//!
//! * **Contained** ([`contain`], [`contained`], [`spawn_blocking`]): a connection, a request, accepting a client. A
//!   panic ends that alone. It is logged and counted, and the peer or the caller sees an error.
//! * **Everything else** is essential: worker threads, background tasks of a device. Once a program has
//!   called [`watch()`], a panic there is a failure of the process: [`failed`] returns, so that the program can end in
//!   order (wipe memory, unmount, flush) with an error, and [`WIND_UP_MAX`] later the process exits in any case. An
//!   essential task that ends without a panic reports that with [`fail`].
//!
//! The panic hook implements this, so threads of libraries are covered, too.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a process may take to end in order once it has failed. A node has to wipe its memory in this time.
pub const WIND_UP_MAX: Duration = Duration::from_secs(120);
/// The pause before work that panicked is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// The exit code of a process that did not end in order.
const EXIT_FAILED: i32 = 1;
/// Threads started by libraries whose panics are contained, because their users notice them: a failure of discovery
/// must not cost a node its content.
const CONTAINED_THREADS: [&str; 1] = ["mDNS_daemon"];

static WATCHED: AtomicBool = AtomicBool::new(false);
static CONTAINED_TOTAL: AtomicU64 = AtomicU64::new(0);
/// Why the process has failed.
static FAILURE: OnceLock<String> = OnceLock::new();
/// Whether the process has failed; tasks can wait for a change.
static FAILED: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

thread_local! {
    /// The nesting depth of contained work on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Why contained work has no result: it panicked with this message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("internal error (panic): {0}")]
pub struct Panicked(String);

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        Self(text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned())
    }
}

/// Marks this thread as inside of contained work until dropped.
struct Inside;

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 && thread::panicking() {
            CONTAINED_TOTAL.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs `work` so that a panic ends it alone. `what` names it in the log.
///
/// # Errors
///
/// The panic's message.
pub async fn contain<F: Future>(what: &str, work: F) -> Result<F::Output, Panicked> {
    let mut work = pin!(work);
    let poll = std::future::poll_fn(|cx| {
        let poll = catch_unwind(AssertUnwindSafe(|| {
            let _inside = Inside::enter();
            work.as_mut().poll(cx)
        }));
        match poll {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(Panicked::new(&*payload))),
        }
    });
    poll.await.inspect_err(|panicked| tracing::error!("{what} ended: {panicked}"))
}

/// Wraps `work` for another thread whose owner handles its panics: `join` returns them.
pub fn contained<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    move || {
        let _inside = Inside::enter();
        work()
    }
}

/// [`tokio::task::spawn_blocking`], for callers that turn a panic of `work` into an error of their own.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(contained(work))
}

/// Runs the future that `start` returns to its end; after a panic, starts another one.
pub async fn persist<F: Future>(what: &str, start: impl Fn() -> F) -> F::Output {
    loop {
        if let Ok(output) = contain(what, start()).await {
            return output;
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Panics of contained work since the start.
pub fn contained_total() -> u64 {
    CONTAINED_TOTAL.load(Ordering::Relaxed)
}

/// Makes panics outside of contained work a failure of the process. For programs, at their start; a library leaves this
/// to the program it is part of.
pub fn watch() {
    if WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        let thread = thread::current();
        if DEPTH.get() == 0 && !thread.name().is_some_and(|name| CONTAINED_THREADS.contains(&name)) {
            let message = Panicked::new(panic.payload());
            fail(format!("{message}, in thread '{}'", thread.name().unwrap_or("unnamed")));
        }
    }));
}

/// Reports that something essential has ended. Programs that called [`watch()`] then end; others only see it in the log.
pub fn fail(why: impl Display) {
    let why = why.to_string();
    if !WATCHED.load(Ordering::Relaxed) {
        tracing::error!("{why}");
        return;
    }
    if FAILURE.set(why).is_err() {
        return;
    }
    // On a thread of its own: this one may hold any lock, and the process must end even if no task waits for this.
    let end = || {
        FAILED.send_replace(true);
        thread::sleep(WIND_UP_MAX);
        std::process::exit(EXIT_FAILED);
    };
    if thread::Builder::new().name("failed".into()).spawn(end).is_err() {
        std::process::abort();
    }
}

/// Why the process has failed, if it has.
pub fn failure() -> Option<String> {
    FAILURE.get().cloned()
}

/// Waits until the process has failed.
pub async fn failed() {
    // The sender is never dropped, so this returns for no other reason.
    let _ = FAILED.subscribe().wait_for(|failed| *failed).await;
}

/// Panics, once in a process, where the environment variable `CHEETAH_TEST_PANIC` names this place. Does nothing in
/// release builds.
pub fn panic_point(place: &str) {
    #[cfg(debug_assertions)]
    {
        static DONE: AtomicBool = AtomicBool::new(false);
        if std::env::var("CHEETAH_TEST_PANIC").is_ok_and(|named| named == place) && !DONE.swap(true, Ordering::Relaxed)
        {
            panic!("asked for by CHEETAH_TEST_PANIC={place}");
        }
    }
    #[cfg(not(debug_assertions))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn a_contained_panic_is_an_error_and_is_counted() {
        let before = contained_total();
        let panicked = contain("a test", async {
            tokio::task::yield_now().await;
            if before < u64::MAX {
                panic!("boom");
            }
            7
        });
        assert_eq!(panicked.await, Err(Panicked("boom".into())));
        assert_eq!(contain("a test", async { 7 }).await, Ok(7));
        assert!(spawn_blocking(|| assert_eq!(DEPTH.get(), 2)).await.unwrap_err().is_panic());
        assert!(contained_total() >= before + 2);
        assert_eq!(DEPTH.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn persistent_work_is_started_again_after_a_panic() {
        let starts = AtomicUsize::new(0);
        let work = || async {
            let start = starts.fetch_add(1, Ordering::Relaxed);
            assert!(start >= 2, "not yet");
            start
        };
        assert_eq!(persist("a test", work).await, 2);
    }
}
