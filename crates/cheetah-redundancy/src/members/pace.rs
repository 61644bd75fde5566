//! The pace of resynchronization, in real time.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Members;
use crate::pace::{Pacer, Turn};

/// The pace of all resynchronization of a drive.
pub(crate) struct Pace {
    pacer: Mutex<Pacer>,
    origin: Instant,
    ended: Notify,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pacer: Mutex::default(), origin: Instant::now(), ended: Notify::new() }
    }
}

/// A step of a resynchronization. Dropping it ends the step.
pub(crate) struct Step<'a> {
    members: &'a Members,
    bytes: u64,
}

impl Members {
    /// Waits until a step may begin that moves `bytes` to or from the busiest member.
    pub(crate) async fn begin_step(&self, bytes: u64) -> Step<'_> {
        loop {
            let mut ended = std::pin::pin!(self.pace.ended.notified());
            ended.as_mut().enable();
            let now = self.pace.origin.elapsed();
            let turn = self.pace.pacer.lock().begin(now, self.foreground_bytes(), bytes);
            match turn {
                Turn::Begun => return Step { members: self, bytes },
                Turn::At(time) => sleep_until(self.pace.origin + time).await,
                Turn::AfterStep => ended.await,
            }
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let pace = &self.members.pace;
        pace.pacer.lock().end(pace.origin.elapsed(), self.members.foreground_bytes(), self.bytes);
        pace.ended.notify_waiters();
    }
}
