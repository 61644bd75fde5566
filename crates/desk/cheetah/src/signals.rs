//! Signals that ask the process to stop.

use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_device::supervise;

use crate::failure::{Context, Failure, Result};
use crate::os::Signals;

/// Whether this command ends in order when it is asked to.
static CAUGHT: AtomicBool = AtomicBool::new(false);

/// Finishes when the process has failed (see [`supervise`]) and the command would not notice.
pub async fn abandoned() {
    supervise::failed().await;
    if CAUGHT.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

/// Catches what asks a process to stop while it exists: SIGINT (Ctrl-C), SIGTERM and SIGHUP; on Windows Ctrl-C, Ctrl-Break, and the
/// end of the window, of the session and of the machine. A failure of the process itself stops it, too.
pub struct Stop(Signals);

impl Stop {
    /// Starts catching.
    pub fn catch() -> Result<Self> {
        CAUGHT.store(true, Ordering::Relaxed);
        Signals::catch().map(Self).context("cannot catch signals")
    }

    /// Finishes `work`, or fails if the process is asked to stop first. `doing` says what was not finished.
    pub async fn unless<T, E: Into<Failure>>(
        &mut self,
        doing: &str,
        work: impl Future<Output = std::result::Result<T, E>>,
    ) -> Result<T> {
        tokio::select! {
            done = work => done.map_err(Into::into),
            signal = self.asked() => Err(Failure::failed(format!("stopped by {signal} while {doing}"))),
        }
    }

    /// Waits for the first of them, and returns its name.
    pub async fn asked(&mut self) -> &'static str {
        tokio::select! {
            signal = self.0.next() => signal,
            _ = supervise::failed() => "an internal error",
        }
    }
}
