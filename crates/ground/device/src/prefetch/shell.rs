//! The I/O around the [`PrefetchEngine`]: it sends requests to the device, waits for them, and reports the outcomes. A
//! guard owns everything that must be reported, so that its end is reported even if a future is dropped early.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;

use super::chunk_cache::{PrefetchedPart, PrefetchedParts};
use super::engine::{FetchOutcome, PrefetchEngine, PrefetchRequest, PrefetchRequests};
use super::stats::PrefetchStats;
use super::writes::WriteId;
use crate::fetch::Background;
use crate::link_estimate::TrackedRequest;
use crate::{ByteRange, Data, DynDevice, Error, Io, Result};

/// State shared by the layer, the reads and the fetches in flight.
pub(super) struct PrefetchShared {
    pub(super) inner: DynDevice,
    engine: Mutex<PrefetchEngine>,
    background: Background,
    /// The device answered the last read at once: nothing is gained by fetching ahead from it.
    instant: AtomicBool,
}

impl PrefetchShared {
    /// Runs fetches on the runtime this is called in.
    pub(super) fn new(inner: DynDevice, engine: PrefetchEngine) -> Self {
        Self { inner, engine: Mutex::new(engine), background: Background::new(), instant: AtomicBool::new(false) }
    }

    pub(super) fn stats(&self) -> PrefetchStats {
        self.engine.lock().stats()
    }

    /// Passes an event to the engine; returns its answer and the fetches to start.
    pub(super) fn with_engine<T>(
        self: &Arc<Self>,
        event: impl FnOnce(&mut PrefetchEngine, Duration, &mut PrefetchRequests) -> T,
    ) -> (T, PrefetchTasks) {
        let now = self.background.now();
        let mut fetches = PrefetchRequests::new();
        let answer = event(&mut self.engine.lock(), now, &mut fetches);
        let task = |fetch| PrefetchTask { shared: Arc::clone(self), fetch, outcome: FetchOutcome::Cancelled };
        (answer, fetches.into_iter().map(task).collect())
    }

    /// Passes a read to the device, and notes whether it answered at once.
    pub(super) fn pass(&self, range: ByteRange) -> Io<'_, Data> {
        let io = self.inner.read(range);
        let instant = matches!(io, Io::Done(Some(Ok(_)))) && !range.is_empty();
        if self.is_instant() != instant {
            self.instant.store(instant, Ordering::Relaxed);
        }
        io
    }

    pub(super) fn is_instant(&self) -> bool {
        self.instant.load(Ordering::Relaxed)
    }

    /// Cancels all fetches.
    pub(super) fn close(&self) {
        self.background.close();
    }

    async fn part(&self, part: PrefetchedPart) -> Result<Data> {
        match part {
            PrefetchedPart::Held(data) => Ok(data),
            PrefetchedPart::Absent(range) => self.inner.read(range).await,
            PrefetchedPart::InFlight { pending, part, range } => match pending.part(part).await {
                Some(data) => Ok(data),
                None => self.inner.read(range).await,
            },
        }
    }
}

/// Answers a read from its parts: requests the absent ones, then starts the fetches, then waits for all parts.
pub(super) async fn gather(mut demand: DemandGuard<'_>, parts: PrefetchedParts, tasks: PrefetchTasks) -> Result<Data> {
    let shared = demand.shared;
    let mut parts = pin!(join_all(parts.into_iter().map(|part| shared.part(part))));
    let early = futures::poll!(&mut parts);
    spawn_all(tasks);
    let (parts, at_hand) = match early {
        Poll::Ready(parts) => (parts, true),
        Poll::Pending => (parts.await, false),
    };
    let mut data = Data::new();
    for part in parts {
        data.append(part?);
    }
    demand.crossed = !at_hand;
    Ok(data)
}

/// A read's bytes in flight; it is over when this is dropped.
pub(super) struct DemandGuard<'a> {
    shared: &'a Arc<PrefetchShared>,
    sent: TrackedRequest,
    /// The data came over the link.
    crossed: bool,
}

impl<'a> DemandGuard<'a> {
    pub(super) fn new(shared: &'a Arc<PrefetchShared>, sent: TrackedRequest) -> Self {
        Self { shared, sent, crossed: false }
    }
}

impl Drop for DemandGuard<'_> {
    fn drop(&mut self) {
        let ((), tasks) = self.shared.with_engine(|engine, now, fetches| {
            engine.demanded(self.sent, self.crossed, now);
            engine.fetch_more(now, fetches);
        });
        spawn_all(tasks);
    }
}

pub(super) type PrefetchTasks = Vec<PrefetchTask>;

/// A fetch, in flight or about to be. It reports every end to the engine, so that no reader waits forever.
pub(super) struct PrefetchTask {
    shared: Arc<PrefetchShared>,
    fetch: PrefetchRequest,
    outcome: FetchOutcome,
}

/// Starts the fetches.
pub(super) fn spawn_all(tasks: PrefetchTasks) {
    for task in tasks {
        let shared = Arc::clone(&task.shared);
        shared.background.spawn(run(task));
    }
}

async fn run(mut task: PrefetchTask) {
    let shared = Arc::clone(&task.shared);
    let read = shared.background.unless_closed(async {
        let read = shared.inner.read(task.fetch.range);
        (matches!(read, Io::Done(_)), read.await)
    });
    task.outcome = match read.await {
        Some((true, Ok(data))) => FetchOutcome::AnsweredAtOnce(data),
        Some((false, Ok(data))) => FetchOutcome::Arrived(data),
        Some((_, Err(error))) => {
            tracing::debug!(range = %task.fetch.range, %error, "fetching ahead failed");
            FetchOutcome::Failed
        }
        None => return,
    };
    drop(task);
    let ((), tasks) = shared.with_engine(|engine, now, fetches| engine.fetch_more(now, fetches));
    spawn_all(tasks);
}

impl Drop for PrefetchTask {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, FetchOutcome::Cancelled);
        self.shared.engine.lock().fetched(&self.fetch, outcome, self.shared.background.now());
    }
}

/// A write of any kind in flight; it ends when this is dropped.
pub(super) struct WriteGuard<'a> {
    shared: &'a PrefetchShared,
    id: WriteId,
    /// The outcome is known, and nothing will change any more.
    settled: bool,
}

impl<'a> WriteGuard<'a> {
    /// Begins a write. Call this before the device is asked to change anything.
    pub(super) fn begin(shared: &'a PrefetchShared, range: ByteRange) -> Self {
        Self { shared, id: shared.engine.lock().write_begins(range), settled: false }
    }

    /// Waits for the write, and ends with it.
    pub(super) fn around(self, io: Io<'a, ()>) -> Io<'a, ()> {
        match io {
            Io::Done(result) => {
                // Refused before anything was sent: nothing has changed, and nothing will.
                let refused = matches!(result, Some(Err(Error::ReadOnly | Error::OutOfBounds { .. })));
                self.end(refused || matches!(result, Some(Ok(()))));
                Io::Done(result)
            }
            Io::Later(later) => Io::later(async move {
                let change = self;
                let result = later.await;
                change.end(result.is_ok());
                result
            }),
        }
    }

    /// Ends the write. No error settles it: an error may stand for several requests, of which one was refused and
    /// reported while another was lost and may still take effect.
    fn end(mut self, settled: bool) {
        self.settled = settled;
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.shared.engine.lock().write_ends(self.id, self.settled);
    }
}
