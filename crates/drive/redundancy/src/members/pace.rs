//! The pace of resynchronization, in real time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Members;
use crate::pace::{Others, Pacer, Turn};

/// The shortest interval of asking the members for the reads of others, while others read.
const ASK_PAUSE: Duration = Duration::from_millis(20);
/// The same interval while nobody else reads: steps wait for the answers.
const ASK_PAUSE_IDLE: Duration = Duration::from_millis(100);

/// The pace of all resynchronization of a drive.
pub(crate) struct Pace {
    pacer: Mutex<Pacer>,
    origin: Instant,
    ended: Notify,
    others: tokio::sync::Mutex<Asked>,
    others_bytes: AtomicU64,
}

/// The members' answers about the reads of other processes.
#[derive(Default)]
struct Asked {
    others: Others,
    /// When the members are asked again.
    due: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            pacer: Mutex::default(),
            origin: Instant::now(),
            ended: Notify::new(),
            others: tokio::sync::Mutex::default(),
            others_bytes: AtomicU64::new(0),
        }
    }
}

impl Pace {
    /// The bytes that other processes have read, on the member with the most.
    pub fn others_bytes(&self) -> u64 {
        self.others_bytes.load(Ordering::Relaxed)
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
            self.ask_for_others().await;
            let now = self.pace.origin.elapsed();
            let turn = self.pace.pacer.lock().begin(now, self.foreground_bytes(), bytes);
            match turn {
                Turn::Begun => return Step { members: self, bytes },
                Turn::At(time) => sleep_until(self.pace.origin + time).await,
                Turn::AfterStep => ended.await,
            }
        }
    }

    /// Asks the members what other processes have read, unless they answered a moment ago.
    async fn ask_for_others(&self) {
        let mut asked = self.pace.others.lock().await;
        if asked.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        let all = self.all_read_bytes().await;
        // Counted after the members' answers, so that no request of this process is counted as another's.
        let bytes = asked.others.heard(&all, &self.own_read_bytes());
        let before = self.pace.others_bytes.swap(bytes, Ordering::Relaxed);
        asked.due = Some(Instant::now() + if bytes > before { ASK_PAUSE } else { ASK_PAUSE_IDLE });
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let pace = &self.members.pace;
        pace.pacer.lock().end(pace.origin.elapsed(), self.bytes);
        pace.ended.notify_waiters();
    }
}
