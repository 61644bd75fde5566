//! The I/O around the [`CacheEngine`]: it sends requests to the device, waits for them, and reports the outcomes. A
//! guard owns every fetch, so that its end is reported even if a future is dropped early.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::Urgency;
use super::engine::{CacheEngine, CacheFetch, CacheFetches, CachePlan, CacheReadStep, CacheReadSteps};
use super::entries::{CacheFetchId, CachedPart};
use super::file_writer::FileWriter;
use super::stats::CacheStats;
use crate::fetch::Background;
use crate::{ByteRange, Data, DynDevice, Error, Result};

/// The number of times a read asks again for a range that another reader failed to get, before it asks the device
/// itself.
const TRIES_MAX: u32 = 3;

/// State shared by the layer, the reads and the fetches in flight.
pub(super) struct CacheShared {
    pub(super) inner: DynDevice,
    engine: Mutex<CacheEngine>,
    writer: Option<FileWriter>,
    background: Background,
}

impl CacheShared {
    /// Runs fetches on the runtime this is called in.
    pub(super) fn new(inner: DynDevice, engine: CacheEngine, writer: Option<FileWriter>) -> Arc<Self> {
        Arc::new(Self { inner, engine: Mutex::new(engine), writer, background: Background::new() })
    }

    pub(super) fn stats(&self) -> CacheStats {
        self.engine.lock().stats()
    }

    pub(super) fn absent(&self, range: ByteRange) -> SmallVec<[ByteRange; 2]> {
        self.engine.lock().absent(range)
    }

    pub(super) fn holds(&self, range: ByteRange) -> bool {
        self.engine.lock().holds(range)
    }

    fn now(&self) -> Duration {
        self.background.now()
    }

    pub(super) fn read(&self, range: ByteRange, counts: bool) -> CachePlan {
        let plan = self.engine.lock().read(range, counts, self.now());
        if counts && let CachePlan::Gather(steps) = &plan {
            let missing = steps.iter().filter(|step| matches!(step, CacheReadStep::Fetch { .. })).count();
            tracing::debug!(%range, missing, "a read waits for the link");
        }
        plan
    }

    /// Queues a hint, and starts fetches.
    pub(super) fn hint(self: &Arc<Self>, range: ByteRange, urgency: Urgency) {
        spawn_all(self.queue(range, urgency).1);
    }

    /// Queues a hint, starts fetches, and waits until the range is held or in flight.
    pub(super) async fn fetch_ahead(self: &Arc<Self>, range: ByteRange, urgency: Urgency) {
        let (done, tasks) = self.queue(range, urgency);
        spawn_all(tasks);
        // An error says that the hint was dropped, as hints may be.
        let _ = done.await;
    }

    fn queue(self: &Arc<Self>, range: ByteRange, urgency: Urgency) -> (oneshot::Receiver<()>, CacheFetchTasks) {
        let (sender, receiver) = oneshot::channel();
        let mut engine = self.engine.lock();
        engine.hint(range, urgency, Some(sender));
        let tasks = self.pump(&mut engine);
        (receiver, tasks)
    }

    fn pump(self: &Arc<Self>, engine: &mut CacheEngine) -> CacheFetchTasks {
        if self.background.is_closed() {
            return CacheFetchTasks::new();
        }
        let mut fetches = CacheFetches::new();
        engine.pump(self.now(), &mut fetches);
        fetches.into_iter().map(|fetch| self.task(fetch)).collect()
    }

    fn task(self: &Arc<Self>, fetch: CacheFetch) -> CacheFetchTask {
        CacheFetchTask { shared: Arc::clone(self), fetch, data: None }
    }

    /// Cancels all fetches.
    pub(super) fn close(&self) {
        self.background.close();
    }

    fn stored(&self, id: CacheFetchId, range: ByteRange, digests: Option<Arc<[u64]>>) {
        let mut engine = self.engine.lock();
        match digests {
            Some(digests) => engine.stored(id, range, digests),
            None => engine.not_stored(id, range),
        }
    }

    /// Passes arrived data to the file's thread, and then the ranges evicted for it. Both are queued under the lock, so
    /// that a later write to an evicted range is queued after its hole.
    fn store(self: &Arc<Self>, engine: &mut CacheEngine, fetch: &CacheFetch, data: Option<Data>) {
        let Some(writer) = &self.writer else { return drop(engine.take_dropped()) };
        if let Some(data) = data.filter(|data| !is_hole(data)) {
            let (shared, id, range) = (Arc::downgrade(self), fetch.id, fetch.range);
            let written = move |digests| {
                if let Some(shared) = shared.upgrade() {
                    shared.stored(id, range, digests);
                }
            };
            if !writer.write(range, data, Box::new(written)) {
                engine.not_stored(id, range);
            }
        }
        engine.take_dropped().into_iter().for_each(|range| writer.punch(range));
    }

    /// Gets a part from its entry, or requests it again if that fails.
    async fn known(self: &Arc<Self>, part: CachedPart, tries: u32) -> Result<Data> {
        match part {
            CachedPart::InMemory(data) => Ok(data),
            CachedPart::InFlight { pending, part, range } => match pending.part(part).await {
                Some(data) => Ok(data),
                None => self.again(range, tries).await,
            },
            CachedPart::InFile { id, whole, part, digests } => match self.read_file(whole, part, digests).await {
                Some(data) => Ok(data),
                None => {
                    if self.engine.lock().corrupted(id, whole) {
                        tracing::warn!("the cache's file is damaged at {whole}; the range is fetched again");
                    }
                    self.again(part, tries).await
                }
            },
            // Unreachable: see `CacheReadStep::Known`.
            CachedPart::Absent(range) => self.inner.read(range).await,
        }
    }

    async fn read_file(&self, whole: ByteRange, part: ByteRange, digests: Arc<[u64]>) -> Option<Data> {
        let file = self.writer.as_ref()?.file();
        self.background.spawn_blocking(move || file.read(whole, part, &digests)).await.ok().flatten()
    }

    /// Reads a range whose fetch by another reader failed, or whose data was lost.
    fn again(self: &Arc<Self>, range: ByteRange, tries: u32) -> BoxFuture<'_, Result<Data>> {
        Box::pin(async move {
            if tries >= TRIES_MAX {
                return self.inner.read(range).await;
            }
            let plan = self.engine.lock().read(range, false, self.now());
            match plan {
                CachePlan::Hit(data) => Ok(data),
                CachePlan::Gather(steps) => gather_guarded(self, guarded(self, steps), tries + 1).await,
            }
        })
    }
}

/// Answers a read from its parts.
pub(super) fn gather(
    shared: &Arc<CacheShared>,
    steps: CacheReadSteps,
) -> impl Future<Output = Result<Data>> + Send + '_ {
    gather_guarded(shared, guarded(shared, steps), 0)
}

/// A [`CacheReadStep`] whose fetch has its guard, so that it is reported even if the answer is never polled.
enum GuardedStep {
    Known(CachedPart),
    Fetch { task: CacheFetchTask, part: ByteRange },
}

fn guarded(shared: &Arc<CacheShared>, steps: CacheReadSteps) -> Vec<GuardedStep> {
    let guard = |step| match step {
        CacheReadStep::Known(part) => GuardedStep::Known(part),
        CacheReadStep::Fetch { fetch, part } => GuardedStep::Fetch { task: shared.task(fetch), part },
    };
    steps.into_iter().map(guard).collect()
}

async fn gather_guarded(shared: &Arc<CacheShared>, steps: Vec<GuardedStep>, tries: u32) -> Result<Data> {
    let parts = steps.into_iter().map(|step| async move {
        match step {
            GuardedStep::Known(part) => shared.known(part, tries).await,
            GuardedStep::Fetch { task, part } => {
                let data = run(task).await?;
                Ok(data.slice(part.offset, part.len))
            }
        }
    });
    let mut data = Data::new();
    for part in join_all(parts).await {
        data.append(part?);
    }
    Ok(data)
}

type CacheFetchTasks = Vec<CacheFetchTask>;

/// A fetch, in flight or about to be. It reports every end to the engine, so that no reader waits forever.
struct CacheFetchTask {
    shared: Arc<CacheShared>,
    fetch: CacheFetch,
    data: Option<Data>,
}

fn spawn_all(tasks: CacheFetchTasks) {
    for task in tasks {
        let shared = Arc::clone(&task.shared);
        shared.background.spawn(async move {
            let range = task.fetch.range;
            if let Err(error) = run(task).await {
                tracing::debug!(%range, %error, "a hint could not be followed");
            }
        });
    }
}

async fn run(mut task: CacheFetchTask) -> Result<Data> {
    let shared = Arc::clone(&task.shared);
    let range = task.fetch.range;
    let read = shared.background.unless_closed(async { shared.inner.read(range).await });
    let outcome = read.await.unwrap_or_else(|| Err(Error::Invalid("the cache is closed".into())));
    let outcome = outcome.and_then(|data| match data.len() == range.len {
        true => Ok(data),
        false => Err(Error::Invalid(format!("{range} was answered with {} bytes", data.len()).into())),
    });
    task.data = outcome.as_ref().ok().cloned();
    drop(task);
    let tasks = shared.pump(&mut shared.engine.lock());
    spawn_all(tasks);
    outcome
}

impl Drop for CacheFetchTask {
    fn drop(&mut self) {
        let (data, shared) = (self.data.take(), &self.shared);
        let mut engine = shared.engine.lock();
        engine.fetched(&self.fetch, data.clone(), shared.now());
        shared.store(&mut engine, &self.fetch, data);
    }
}

/// Whether data consists of zeros, which take no memory to keep.
fn is_hole(data: &Data) -> bool {
    data.parts().iter().all(|part| matches!(part, crate::data::Part::Zeros(_)))
}
