//! Running requests without blocking the thread that received them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An alarm that is raised when a mount can no longer be served: a request panicked, or the session broke.
#[derive(Clone)]
pub(super) struct Alarm(Arc<watch::Sender<Option<Arc<str>>>>);

impl Default for Alarm {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Alarm {
    /// Raises the alarm, unless it is raised already.
    pub(super) fn raise(&self, why: &str) {
        self.0.send_if_modified(|raised| {
            let first = raised.is_none();
            raised.get_or_insert_with(|| why.into());
            first
        });
    }

    /// Raises the alarm with the message of a panic.
    pub(super) fn raise_panic(&self, panic: &(dyn Any + Send)) {
        let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref().map(String::as_str));
        self.raise(&format!("a request panicked ({})", message.unwrap_or("without a message")));
    }

    /// Whether the alarm is raised.
    pub(super) fn is_raised(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until the alarm is raised; returns the reason.
    pub(super) async fn raised(&self) -> Arc<str> {
        let mut changes = self.0.subscribe();
        match changes.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()) {
            Some(why) => why,
            // Unreachable: the sender is ours.
            None => std::future::pending().await,
        }
    }
}

/// A request that raises the alarm if it panics. It is finished then; dropping its reply sends an error.
struct Guarded {
    request: Option<Request>,
    alarm: Alarm,
}

impl Future for Guarded {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(request) = &mut self.request else { return Poll::Ready(()) };
        match catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(panic) => {
                self.alarm.raise_panic(&*panic);
                self.request = None;
                Poll::Ready(())
            }
        }
    }
}

/// Runs `request` on this thread until it has to wait, and the rest on `runtime`.
///
/// So a request that is answered from memory needs no thread switch. A request that waits is handed to the runtime only when
/// it can continue: spawning it at once would wake a thread of the runtime for nothing, and waking an idle processor takes
/// longer than many a read.
pub(super) fn run(runtime: &Handle, alarm: &Alarm, request: impl Future<Output = ()> + Send + 'static) {
    let task = Arc::new(RequestTask { runtime: runtime.clone(), state: Mutex::new(State::Polled) });
    let waker = Waker::from(Arc::clone(&task));
    let mut request = Guarded { request: Some(Box::pin(request)), alarm: alarm.clone() };
    let _in_runtime = runtime.enter();
    if Pin::new(&mut request).poll(&mut Context::from_waker(&waker)).is_ready() {
        return;
    }
    let woken = {
        let mut state = task.state.lock();
        match *state {
            State::Woken => Some(request),
            _ => {
                *state = State::Waiting(request);
                None
            }
        }
    };
    if let Some(request) = woken {
        drop(runtime.spawn(request));
    }
}

struct RequestTask {
    runtime: Handle,
    state: Mutex<State>,
}

enum State {
    /// Being polled for the first time.
    Polled,
    /// Waiting to be woken.
    Waiting(Guarded),
    /// Woken: the runtime has it, or gets it when its first poll ends.
    Woken,
}

impl Wake for RequestTask {
    fn wake(self: Arc<Self>) {
        // The lock is released first: a runtime that is shutting down may drop the request at once.
        let before = std::mem::replace(&mut *self.state.lock(), State::Woken);
        if let State::Waiting(request) = before {
            drop(self.runtime.spawn(request));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[test]
    fn a_request_that_need_not_wait_is_done_on_return() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, mut receiver) = oneshot::channel();
        run(runtime.handle(), &Alarm::default(), async { sender.send(7).unwrap() });
        assert_eq!(receiver.try_recv(), Ok(7));
    }

    #[test]
    fn a_waiting_request_resumes_when_woken() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for turns in [1, 3] {
            let (go, gone) = oneshot::channel::<()>();
            let (sender, receiver) = oneshot::channel();
            run(runtime.handle(), &Alarm::default(), async move {
                // Wakes itself while it is polled.
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                gone.await.unwrap();
                sender.send(turns).unwrap();
            });
            go.send(()).unwrap();
            assert_eq!(runtime.block_on(receiver), Ok(turns));
        }
        let (go, gone) = oneshot::channel::<()>();
        let (sender, receiver) = oneshot::channel();
        run(runtime.handle(), &Alarm::default(), async move { sender.send(gone.await.is_ok()).unwrap() });
        go.send(()).unwrap();
        assert_eq!(runtime.block_on(receiver), Ok(true));
    }
}
