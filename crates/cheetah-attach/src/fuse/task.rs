//! Running a request to its end without blocking the thread it came in on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `request` here as far as it goes without waiting, and the rest, if any, on `runtime`.
///
/// So a request that is answered from memory costs no change of thread. One that waits is not handed to the
/// runtime until it can go on: a `spawn` right away would wake one of the runtime's threads just to find that
/// there is nothing to do yet, and waking an idle processor takes longer than many a read.
pub(super) fn run(runtime: &Handle, request: impl Future<Output = ()> + Send + 'static) {
    let task = Arc::new(Task { runtime: runtime.clone(), state: Mutex::new(State::Polled) });
    let waker = Waker::from(Arc::clone(&task));
    let mut request: Request = Box::pin(request);
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

struct Task {
    runtime: Handle,
    state: Mutex<State>,
}

enum State {
    /// Being polled for the first time.
    Polled,
    /// Waits to be woken.
    Waiting(Request),
    /// Was woken; the runtime has it, or gets it when its first poll ends.
    Woken,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // The lock is let go before the runtime gets the request, which it may drop if it is shutting down.
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
    fn what_need_not_wait_is_done_on_return() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, mut receiver) = oneshot::channel();
        run(runtime.handle(), async { sender.send(7).unwrap() });
        assert_eq!(receiver.try_recv(), Ok(7));
    }

    #[test]
    fn what_waits_goes_on_when_woken_before_or_after() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for turns in [1, 3] {
            let (go, gone) = oneshot::channel::<()>();
            let (sender, receiver) = oneshot::channel();
            run(runtime.handle(), async move {
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
        run(runtime.handle(), async move { sender.send(gone.await.is_ok()).unwrap() });
        go.send(()).unwrap();
        assert_eq!(runtime.block_on(receiver), Ok(true));
    }
}
