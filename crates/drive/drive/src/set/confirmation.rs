//! How long a writer may rely on its knowledge of the drive: until its leases could have expired.
//!
//! Leases are renewed in rounds. While the leases of a deciding set of nodes last, no other writer can take over the
//! drive. But this process may be stopped, or cut off from the nodes, for longer than they last. Meanwhile another
//! writer may have continued without a node that this process still reads. This process therefore reads nothing more
//! until a round has shown that nobody has written meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, DynDevice, Error, Extent, Io};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::lease::Fence;
use crate::timing::{FAILED_PAUSE, FAILED_PAUSE_MAX, RELIED_ON, RENEWAL_S};

/// Requests fail after this number of consecutive failed rounds. Rounds are counted, not time: this process may have
/// been stopped.
const FAILED_ROUNDS_MAX: u32 = 3;

/// Why a writer does not rely on its leases; a clause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unconfirmed {
    /// The fence is up.
    #[error("another writer has the drive, or had it meanwhile; close it and open it again")]
    Fenced,
    /// Too few nodes renew the leases.
    #[error(
        "only {held} of {nodes} nodes renew the write lease, too few to be sure that no other writer has the drive; bring the \
         others back"
    )]
    TooFew {
        /// The nodes that do.
        held: usize,
        /// The nodes of the set.
        nodes: usize,
    },
}

/// Whether the leases are known to hold.
pub(super) struct Confirmation {
    origin: Instant,
    /// Until when the leases are relied on, in milliseconds since `origin`.
    until_ms: AtomicU64,
    rounds: Mutex<Rounds>,
    /// A request waits for a round.
    wanted: Notify,
    /// A round has ended.
    ended: Notify,
    fence: Arc<Fence>,
}

/// The last rounds.
struct Rounds {
    /// The beginning of the last round that confirmed the leases.
    confirmed: Option<Instant>,
    /// When a node last refused a lease. Rounds that began before confirm nothing.
    doubted: Option<Instant>,
    /// Rounds that failed since then.
    failed: u32,
    /// Why the last one failed.
    why: Option<Unconfirmed>,
}

impl Confirmation {
    /// For leases that are not taken yet.
    pub fn new(fence: Arc<Fence>) -> Self {
        Self {
            origin: Instant::now(),
            until_ms: AtomicU64::new(0),
            rounds: Mutex::new(Rounds { confirmed: None, doubted: None, failed: 0, why: None }),
            wanted: Notify::new(),
            ended: Notify::new(),
            fence,
        }
    }

    /// Returns when the next round is due.
    pub async fn due(&self) {
        let mut pause = Duration::from_secs(RENEWAL_S);
        if self.rounds.lock().failed > 0 {
            sleep(FAILED_PAUSE).await;
            pause = FAILED_PAUSE_MAX;
        }
        timeout(pause, self.wanted.notified()).await.ok();
    }

    /// Notes that a round which began at `begun` has confirmed the leases.
    pub fn confirmed(&self, begun: Instant) {
        {
            let mut rounds = self.rounds.lock();
            (rounds.confirmed, rounds.failed) = (Some(begun), 0);
            if rounds.doubted.is_none_or(|doubted| doubted <= begun) {
                let until = (begun + RELIED_ON).saturating_duration_since(self.origin);
                self.until_ms.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
            }
        }
        self.ended.notify_waiters();
    }

    /// Notes that a round has not confirmed the leases.
    pub fn failed(&self, why: Unconfirmed) {
        {
            let mut rounds = self.rounds.lock();
            rounds.failed = rounds.failed.saturating_add(1);
            rounds.why = Some(why);
        }
        self.ended.notify_waiters();
    }

    /// Relies on the leases permanently: the user has stated that nobody else writes.
    pub fn assume(&self) {
        self.until_ms.store(u64::MAX, Ordering::Release);
    }

    /// Notes that a node refused a lease: it may have been another writer's meanwhile.
    pub fn doubt(&self) {
        let mut rounds = self.rounds.lock();
        rounds.doubted = Some(Instant::now());
        self.until_ms.store(0, Ordering::Release);
    }

    /// Whether the leases are relied on.
    pub fn is_valid(&self) -> bool {
        let now_ms = self.origin.elapsed().as_millis();
        now_ms < u128::from(self.until_ms.load(Ordering::Acquire)) && !self.fence.is_up()
    }

    /// Returns once the leases are relied on.
    ///
    /// # Errors
    ///
    /// The reason, if another writer has or had the drive, or if round after round fails.
    pub async fn wait(&self) -> Result<(), Unconfirmed> {
        self.until(|_| self.is_valid()).await
    }

    /// Returns once a round that began at `asked` or later has confirmed the leases.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub async fn confirmed_since(&self, asked: Instant) -> Result<(), Unconfirmed> {
        self.until(|rounds| rounds.confirmed.is_some_and(|begun| begun >= asked)).await
    }

    async fn until(&self, is_reached: impl Fn(&Rounds) -> bool) -> Result<(), Unconfirmed> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.fence.is_up() {
                return Err(Unconfirmed::Fenced);
            }
            {
                let rounds = self.rounds.lock();
                if is_reached(&rounds) {
                    return Ok(());
                }
                if let Some(why) = rounds.why.as_ref().filter(|_| rounds.failed >= FAILED_ROUNDS_MAX) {
                    return Err(why.clone());
                }
            }
            self.wanted.notify_one();
            timeout(FAILED_PAUSE_MAX, ended).await.ok();
        }
    }
}

/// A writer's drive, which is read only while its leases are relied on. The nodes themselves refuse writes without a
/// lease.
pub(super) struct Confirmed {
    inner: DynDevice,
    confirmation: Arc<Confirmation>,
}

impl Confirmed {
    pub fn new(inner: DynDevice, confirmation: Arc<Confirmation>) -> Self {
        Self { inner, confirmation }
    }

    async fn wait(&self, range: ByteRange) -> cheetah_device::Result<()> {
        let waited = self.confirmation.wait().await;
        waited.map_err(|why| Error::Lost { device: "the drive".into(), range, why: why.to_string().into() })
    }
}

impl Layer for Confirmed {
    type Below = DynDevice;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::PassThrough;

    fn below(&self) -> &DynDevice {
        &self.inner
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        if self.confirmation.is_valid() {
            return self.inner.read(range);
        }
        Io::later(async move {
            self.wait(range).await?;
            self.inner.read(range).await
        })
    }

    fn on_extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        if self.confirmation.is_valid() {
            return self.inner.extents(range);
        }
        Io::later(async move {
            self.wait(range).await?;
            self.inner.extents(range).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    const NOBODY_ANSWERS: Unconfirmed = Unconfirmed::TooFew { held: 0, nodes: 3 };

    fn confirmation() -> Arc<Confirmation> {
        Arc::new(Confirmation::new(Arc::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_of_a_writer_that_was_stopped_waits_for_a_round() {
        let confirmation = confirmation();
        assert!(confirmation.wait().now_or_never().is_none());
        let begun = Instant::now();
        confirmation.confirmed(begun);
        sleep(RELIED_ON - Duration::from_millis(1)).await;
        assert_eq!(confirmation.wait().now_or_never(), Some(Ok(())));
        sleep(Duration::from_millis(1)).await;
        assert!(confirmation.wait().now_or_never().is_none());
        confirmation.due().now_or_never().expect("a read waits");
        confirmation.confirmed(begun);
        assert!(confirmation.wait().now_or_never().is_none(), "that round began too long ago");
        confirmation.confirmed(Instant::now());
        assert_eq!(confirmation.wait().now_or_never(), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_only_a_later_round_counts() {
        let confirmation = confirmation();
        let begun = Instant::now();
        confirmation.confirmed(begun);
        sleep(Duration::from_millis(1)).await;
        confirmation.doubt();
        let asked = Instant::now();
        confirmation.confirmed(begun);
        assert!(!confirmation.is_valid() && confirmation.confirmed_since(asked).now_or_never().is_none());
        confirmation.confirmed(Instant::now());
        assert!(confirmation.is_valid());
        assert_eq!(confirmation.confirmed_since(asked).now_or_never(), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn reads_fail_after_failed_rounds_and_once_another_writer_has_the_drive() {
        let confirmation = confirmation();
        let rounds = async {
            loop {
                confirmation.due().await;
                confirmation.failed(NOBODY_ANSWERS);
            }
        };
        let read = tokio::select! { read = confirmation.wait() => read, () = rounds => Ok(()) };
        assert_eq!(read, Err(NOBODY_ANSWERS));
        confirmation.confirmed(Instant::now());
        assert_eq!(confirmation.wait().await, Ok(()));
        confirmation.fence.raise();
        assert_eq!(confirmation.wait().await, Err(Unconfirmed::Fenced));
    }
}
