//! The I/O around the [`CopyEngine`]: it reads the source, writes to the drive, waits, and reports the outcomes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot, watch};

use super::engine::{AnswerPart, CopyAction, CopyEngine, CopyReadPlan, ReadId};
use super::transfers::TransferId;
use super::{CopyRecord, Progress};
use crate::fetch::Background;
use crate::{ByteRange, Coverage, Data, DynDevice, Error, Io, Result};

type Answer = Result<Vec<AnswerPart>>;

/// State shared by the layer, its reads and its tasks.
pub(super) struct CopyShared {
    pub(super) source: DynDevice,
    pub(super) drive: DynDevice,
    record: Arc<dyn CopyRecord>,
    state: Mutex<State>,
    /// Closed when nothing more is to be fetched.
    background: Background,
    progress: watch::Sender<Progress>,
    /// The drive has all content, so the engine need not be asked any more.
    whole: AtomicBool,
    /// Notified after each event, which may change the time of the next wake-up.
    happened: Notify,
    /// Notified when a write to the drive has ended.
    written: Notify,
    /// Held while coverage is recorded, so that no record replaces a newer one. True after the last record.
    closed: tokio::sync::Mutex<bool>,
}

struct State {
    engine: CopyEngine,
    waiting: BTreeMap<ReadId, oneshot::Sender<Answer>>,
}

/// How a read is answered.
pub(super) enum CopyAnswer {
    Now(Answer),
    Later(Waiting),
}

impl CopyShared {
    /// Starts the background copy on the runtime this is called in.
    pub(super) fn start(
        source: DynDevice,
        drive: DynDevice,
        record: Arc<dyn CopyRecord>,
        engine: CopyEngine,
    ) -> Arc<Self> {
        let shared = Arc::new(Self {
            source,
            drive,
            record,
            progress: watch::Sender::new(engine.progress().clone()),
            state: Mutex::new(State { engine, waiting: BTreeMap::new() }),
            background: Background::new(),
            whole: AtomicBool::new(false),
            happened: Notify::new(),
            written: Notify::new(),
            closed: tokio::sync::Mutex::new(false),
        });
        shared.background.spawn(keep_going(Arc::clone(&shared)));
        shared
    }

    pub(super) fn engine(&self) -> MappedMutexGuard<'_, CopyEngine> {
        MutexGuard::map(self.state.lock(), |state| &mut state.engine)
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Reads a range.
    pub(super) fn read(self: &Arc<Self>, range: ByteRange) -> CopyAnswer {
        let (now, mut actions) = (self.background.now(), Vec::new());
        let mut state = self.state.lock();
        let id = match state.engine.read(range, now, &mut actions) {
            // This changed nothing, so there is nothing else to do.
            CopyReadPlan::Now(answer) => return CopyAnswer::Now(answer),
            CopyReadPlan::Wait(id) => id,
        };
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(id, sender);
        self.settle(&mut state, now, actions);
        drop(state);
        self.happened.notify_one();
        CopyAnswer::Later(Waiting { shared: Arc::clone(self), id, receiver })
    }

    /// Stops serving these ranges from the drive.
    pub(super) fn forget(self: &Arc<Self>, ranges: &[ByteRange]) {
        self.happen(|engine, _, _| ranges.iter().for_each(|range| engine.invalidate(*range)));
    }

    /// Passes an event to the engine, and performs the resulting actions.
    fn happen(self: &Arc<Self>, event: impl FnOnce(&mut CopyEngine, Duration, &mut Vec<CopyAction>)) {
        let (now, mut actions) = (self.background.now(), Vec::new());
        let mut state = self.state.lock();
        event(&mut state.engine, now, &mut actions);
        self.settle(&mut state, now, actions);
        drop(state);
        self.happened.notify_one();
    }

    /// Starts all fetches that may start. Returns the time of the next call, if no event arrives before.
    fn pump(self: &Arc<Self>) -> Option<Duration> {
        let now = self.background.now();
        let mut state = self.state.lock();
        self.settle(&mut state, now, Vec::new());
        state.engine.wakes_at(now)
    }

    fn settle(self: &Arc<Self>, state: &mut State, now: Duration, mut actions: Vec<CopyAction>) {
        state.engine.pump(now, &mut actions);
        let progress = state.engine.progress();
        self.whole.store(progress.read == progress.size, Ordering::Release);
        self.progress.send_if_modified(|shown| {
            let news = shown != progress;
            if news {
                shown.clone_from(progress);
            }
            news
        });
        for action in actions {
            self.perform(action, state);
        }
    }

    fn perform(self: &Arc<Self>, action: CopyAction, state: &mut State) {
        let shared = Arc::clone(self);
        match action {
            CopyAction::Fetch(id, range) => self.background.spawn(shared.fetch(id, range)),
            CopyAction::Write(id, range, data) => self.background.spawn(shared.write(id, range, data)),
            CopyAction::Flush => self.background.spawn(shared.flush()),
            CopyAction::Record(coverage) => self.background.spawn(shared.record(coverage)),
            CopyAction::Answer(id, answer) => {
                if let Some(sender) = state.waiting.remove(&id) {
                    // A reader that was dropped meanwhile needs no answer.
                    let _ = sender.send(answer);
                }
            }
        }
    }

    async fn fetch(self: Arc<Self>, id: TransferId, range: ByteRange) {
        let read = async { self.source.read(range).await };
        // After closing, no reader waits for it any more.
        let Some(outcome) = self.background.unless_closed(read).await else { return };
        if let Some(data) = outcome.as_ref().ok().filter(|data| data.len() == range.len) {
            self.record.passed(range, data);
        }
        self.happen(|engine, now, actions| engine.fetched(id, outcome, now, actions));
    }

    async fn write(self: Arc<Self>, id: TransferId, range: ByteRange, data: Data) {
        let outcome = self.drive.write(range.offset, data, false).await;
        if let Err(error) = &outcome {
            tracing::warn!("copying {range}: {error}");
        }
        self.happen(|engine, now, actions| engine.written(id, outcome, now, actions));
        self.written.notify_waiters();
    }

    async fn flush(self: Arc<Self>) {
        let outcome = self.drive.flush().await;
        self.happen(|engine, now, actions| engine.flushed(outcome, now, actions));
    }

    async fn record(self: Arc<Self>, coverage: Coverage) {
        let closed = self.closed.lock().await;
        if *closed {
            return;
        }
        let outcome = self.record.record(coverage).await;
        if let Err(error) = &outcome {
            tracing::warn!("the progress of the copy could not be recorded: {error}");
        }
        self.happen(|engine, now, _| engine.recorded(&outcome, now));
    }

    /// Stops fetching.
    pub(super) fn stop(self: &Arc<Self>) {
        let why = Error::Invalid("the drive is being closed".into());
        self.happen(|engine, _, actions| engine.stop(why, actions));
        self.background.close();
    }

    pub(super) async fn close(self: &Arc<Self>) -> Result<()> {
        self.stop();
        loop {
            // Listen before looking, or a write that ends in between would be missed.
            let mut written = pin!(self.written.notified());
            written.as_mut().enable();
            if self.engine().is_quiet() {
                break;
            }
            written.await;
        }
        let mut closed = self.closed.lock().await;
        if std::mem::replace(&mut *closed, true) || self.engine().progress().recorded {
            return Ok(());
        }
        let coverage = self.engine().coverage().clone();
        self.drive.flush().await?;
        self.record.record(coverage).await
    }
}

/// Wakes the engine when it is due, until the layer is closed.
async fn keep_going(shared: Arc<CopyShared>) {
    loop {
        let wakes_at = shared.pump();
        let woken = async {
            tokio::select! {
                () = shared.background.sleep_until(wakes_at) => {}
                () = shared.happened.notified() => {}
            }
        };
        if shared.background.unless_closed(woken).await.is_none() {
            return;
        }
    }
}

/// A read that waits. It is cancelled when this is dropped.
pub(super) struct Waiting {
    shared: Arc<CopyShared>,
    id: ReadId,
    receiver: oneshot::Receiver<Answer>,
}

impl Waiting {
    pub(super) async fn answer(mut self) -> Answer {
        let gone = |_| Err(Error::Invalid("the drive was closed".into()));
        (&mut self.receiver).await.unwrap_or_else(gone)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.waiting.remove(&self.id);
        state.engine.forget(self.id);
    }
}

/// Joins the parts of an answer.
pub(super) fn gather(drive: &DynDevice, mut parts: Vec<AnswerPart>) -> Io<'_, Data> {
    let fetch = move |part| match part {
        AnswerPart::OnDrive(range) => drive.read(range),
        AnswerPart::InMemory(data) => Io::ok(data),
    };
    if parts.len() <= 1 {
        return parts.pop().map_or_else(|| Io::ok(Data::new()), fetch);
    }
    Io::later(async move {
        let mut whole = Data::new();
        for data in try_join_all(parts.into_iter().map(fetch)).await? {
            whole.append(data);
        }
        Ok(whole)
    })
}
