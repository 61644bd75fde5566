//! A reader's lease: for how long it may read members by its map.
//!
//! A writer that continues without a member records that in a stored map. A reader elsewhere may not know of it and may
//! still reach the member, for instance if both are cut off together. A reader therefore *looks* at the map, and reads
//! only for [`READ_LEASE`] after the beginning of a look that a deciding set of [`Votes`](crate::Votes) has answered. A
//! writer waits for [`READ_LEASE_END`](crate::timing::READ_LEASE_END) between storing that a member missed a write and
//! acknowledging that write:
//!
//! ```text
//! reader   look ----- lease -----|           a look that begins after the map was stored finds it
//! writer        map stored -- READ_LEASE_END --| write acknowledged
//! ```
//!
//! A read may or may not see a write that is acknowledged after the read has begun, so the lease is checked only when a
//! read begins. Between looks, a read costs no additional request. The writer waits only after a loss, and not for a
//! member whose process has certainly ended.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::environment::Cause;
use crate::timing::{IDLE_PAUSE, LOOK_PAUSE, READ_LEASE};

/// Reads fail after this number of consecutive looks that too few nodes answered. Looks are counted, not time: the
/// reader itself may have been frozen.
const FAILED_LOOKS_MAX: u32 = 8;

/// The lease of one reader.
#[derive(Debug)]
pub struct ReadLease {
    origin: Instant,
    /// When the lease ends, in microseconds since `origin`.
    until_us: AtomicU64,
    /// There was a read since the last look.
    is_used: AtomicBool,
    failed: Mutex<Failed>,
    /// A read waits for a look.
    wanted: Notify,
    /// A look has ended.
    looked: Notify,
    /// Whether to read without a lease once looks fail.
    is_lenient: bool,
}

/// Looks that failed since the last successful one.
#[derive(Debug, Default)]
struct Failed {
    looks: u32,
    /// The reason of the last one.
    why: Option<Unsure>,
}

/// Why no read may begin: look after look has failed, the last one for this reason.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct Unsure(Cause);

impl ReadLease {
    /// A lease that has expired. With `is_lenient`, reads continue while looks fail: the user wants all content that
    /// can be read.
    pub fn new(is_lenient: bool) -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            until_us: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            failed: Mutex::default(),
            wanted: Notify::new(),
            looked: Notify::new(),
            is_lenient,
        })
    }

    /// Returns when the next look is due.
    pub async fn due(&self) {
        let failed = self.failed.lock().looks;
        let soon = (LOOK_PAUSE * (1 << failed.min(4))).min(IDLE_PAUSE);
        sleep(if failed > 0 { soon } else { Duration::ZERO }).await;
        let wanted = self.wanted.notified();
        let used = async {
            sleep(LOOK_PAUSE).await;
            if !self.is_used.load(Ordering::Relaxed) {
                sleep(IDLE_PAUSE - LOOK_PAUSE).await;
            }
        };
        tokio::select! {
            () = wanted => {}
            () = used => {}
        }
    }

    /// Notes that a deciding set answered the look that began at `begun`, and that its map is applied.
    pub fn confirmed(&self, begun: Instant) {
        let until = begun + READ_LEASE;
        *self.failed.lock() = Failed::default();
        self.is_used.store(false, Ordering::Relaxed);
        let until_us = u64::try_from((until - self.origin).as_micros()).unwrap_or(u64::MAX);
        self.until_us.fetch_max(until_us, Ordering::Release);
        self.looked.notify_waiters();
    }

    /// Notes that too few nodes answered a look.
    pub fn failed(&self, why: impl Into<Box<dyn Error + Send + Sync>>) {
        let why: Box<dyn Error + Send + Sync> = why.into();
        {
            let mut failed = self.failed.lock();
            failed.looks = failed.looks.saturating_add(1);
            failed.why = Some(Unsure(why.into()));
        }
        self.looked.notify_waiters();
    }

    fn is_valid(&self) -> bool {
        let now_us = (Instant::now() - self.origin).as_micros();
        now_us < u128::from(self.until_us.load(Ordering::Acquire))
    }

    /// Returns when a read may begin.
    ///
    /// # Errors
    ///
    /// If too few nodes answered look after look.
    pub async fn wait(&self) -> Result<(), Unsure> {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        // Waiting takes a lock that all readers share.
        if self.is_valid() {
            return Ok(());
        }
        loop {
            let mut looked = std::pin::pin!(self.looked.notified());
            looked.as_mut().enable();
            if self.is_valid() {
                return Ok(());
            }
            {
                let failed = self.failed.lock();
                match &failed.why {
                    Some(_) if self.is_lenient => return Ok(()),
                    Some(why) if failed.looks >= FAILED_LOOKS_MAX => return Err(why.clone()),
                    _ => {}
                }
            }
            self.wanted.notify_one();
            timeout(IDLE_PAUSE, looked).await.ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_a_look_that_began_less_than_a_lease_ago() {
        let lease = ReadLease::new(false);
        assert!(lease.wait().now_or_never().is_none());
        let begun = Instant::now();
        sleep(READ_LEASE / 2).await;
        lease.confirmed(begun);
        assert!(matches!(lease.wait().now_or_never(), Some(Ok(()))));
        sleep(READ_LEASE / 2).await;
        assert!(lease.wait().now_or_never().is_none(), "the look began a lease ago");
        lease.confirmed(begun);
        assert!(lease.wait().now_or_never().is_none());
        let (read, ()) = tokio::join!(lease.wait(), async {
            lease.due().await;
            lease.confirmed(Instant::now());
        });
        read.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn reads_fail_after_many_looks_that_failed_and_go_on_after_one_that_did_not() {
        for is_lenient in [false, true] {
            let lease = ReadLease::new(is_lenient);
            let looks = async {
                loop {
                    lease.due().await;
                    lease.failed("nobody answers");
                }
            };
            let read = tokio::select! { read = lease.wait() => read, () = looks => Ok(()) };
            assert_eq!(
                read.map_err(|why| why.to_string()),
                if is_lenient { Ok(()) } else { Err("nobody answers".into()) }
            );
            lease.confirmed(Instant::now());
            lease.wait().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_are_rare_while_nobody_reads() {
        let lease = ReadLease::new(false);
        let begun = Instant::now();
        lease.due().await;
        assert_eq!(begun.elapsed(), IDLE_PAUSE);
        lease.confirmed(Instant::now());
        lease.wait().await.ok();
        let begun = Instant::now();
        lease.due().await;
        assert_eq!(begun.elapsed(), LOOK_PAUSE);
    }
}
