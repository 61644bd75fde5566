//! The tokio runtime of the process.

use std::future::Future;
use std::pin::pin;
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::failure;

/// OpenOptions often a waiting read checks for Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(100);

/// The runtime, and the process that owns its threads: a forked child has none of them.
struct Ours {
    pid: u32,
    runtime: Runtime,
}

static OURS: OnceLock<Ours> = OnceLock::new();

/// Returns whether the runtime's threads are in this process, or none exist yet.
pub fn is_here() -> bool {
    OURS.get().is_none_or(|ours| ours.pid == process::id())
}

/// Returns the runtime of this process.
///
/// # Errors
///
/// In a process forked from one that has used it: waiting for missing threads would take for ever.
pub fn get() -> PyResult<&'static Runtime> {
    if let Some(ours) = OURS.get() {
        return if ours.pid == process::id() { Ok(&ours.runtime) } else { Err(forked()) };
    }
    let runtime = Builder::new_multi_thread()
        .thread_name("cheetah")
        .enable_all()
        .build()
        .map_err(|error| failure::failed(format!("cannot start worker threads: {error}")))?;
    Ok(&OURS.get_or_init(|| Ours { pid: process::id(), runtime }).runtime)
}

fn forked() -> PyErr {
    failure::misused(
        "this process was forked from one that has used cheetah, and its threads are not here; start processes afresh \
         instead: multiprocessing.get_context(\"spawn\") (or \"forkserver\")"
            .to_owned(),
    )
}

/// Drops a value with tasks on the runtime. In a forked process it is leaked instead: a missing thread may hold its locks.
pub fn discard<T>(thing: T) {
    if !is_here() {
        return std::mem::forget(thing);
    }
    let _guard = OURS.get().map(|ours| ours.runtime.enter());
    drop(thing);
}

/// Waits for `future` with Python's lock released, checking for Ctrl-C now and then.
///
/// # Errors
///
/// [`forked`], or the exception of a signal handler; the future has then been dropped.
pub fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = get()?;
    py.detach(|| {
        let mut future = pin!(future);
        loop {
            if let Ok(output) = runtime.block_on(async { timeout(LOOK_UP, &mut future).await }) {
                return Ok(output);
            }
            Python::attach(|py| py.check_signals())?;
        }
    })
}
