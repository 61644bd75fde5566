//! Running requests without blocking the thread that received them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use cheetah_device::supervise::contain;
use parking_lot::Mutex;
use tokio::runtime::Handle;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `request`, named `what` in the log, on this thread until it has to wait, and the rest on `runtime`.
///
/// A request that is answered from memory therefore needs no thread switch. A request that waits is handed to the
/// runtime only when it can continue: spawning it at once would wake a thread of the runtime needlessly, and waking an
/// idle processor takes longer than many reads.
///
/// A request that panics ends; dropping its reply sends an error.
pub(crate) fn run(runtime: &Handle, what: &'static str, request: impl Future<Output = ()> + Send + 'static) {
    let task = Arc::new(RequestTask { runtime: runtime.clone(), state: Mutex::new(State::Polled) });
    let waker = Waker::from(Arc::clone(&task));
    // The log has the panic.
    let mut request: Request = Box::pin(async move { drop(contain(what, request).await) });
    let _in_runtime = runtime.enter();
    if request.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
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
    Waiting(Request),
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
        run(runtime.handle(), "a request", async { sender.send(7).unwrap() });
        assert_eq!(receiver.try_recv(), Ok(7));
    }

    #[test]
    fn a_waiting_request_resumes_when_woken() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for turns in [1, 3] {
            let (go, gone) = oneshot::channel::<()>();
            let (sender, receiver) = oneshot::channel();
            run(runtime.handle(), "a request", async move {
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
        run(runtime.handle(), "a request", async move { sender.send(gone.await.is_ok()).unwrap() });
        go.send(()).unwrap();
        assert_eq!(runtime.block_on(receiver), Ok(true));
    }
}
