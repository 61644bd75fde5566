//! Being asked to stop.

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Context, Result};

/// The signals that ask a process to stop, caught from the moment this exists.
pub struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Stop {
    /// Starts catching SIGINT (Ctrl-C), SIGTERM and SIGHUP.
    pub fn catch() -> Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    /// Waits for the first of them, and says which it was.
    pub async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
