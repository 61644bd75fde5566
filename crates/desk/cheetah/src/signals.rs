//! Signals that ask the process to stop.

use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_device::supervise;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Context, Failure, Result};

/// Whether this command ends in order when it is asked to.
static CAUGHT: AtomicBool = AtomicBool::new(false);

/// Finishes when the process has failed (see [`supervise`]) and the command would not notice.
pub async fn abandoned() {
    supervise::failed().await;
    if CAUGHT.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

/// Catches SIGINT (Ctrl-C), SIGTERM and SIGHUP while it exists. A failure of the process itself stops it, too.
pub struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Stop {
    /// Starts catching the signals.
    pub fn catch() -> Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        CAUGHT.store(true, Ordering::Relaxed);
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
        })
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
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
            _ = supervise::failed() => "an internal error",
        }
    }
}
