//! What runs the [`Engine`]: it asks the source, writes to the drive, waits, and reports back.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, select, try_join_all};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::engine::{Action, Engine, Piece, Plan, ReadId};
use super::flights::FlightId;
use super::{Ledger, Progress};
use crate::{ByteRange, Coverage, Data, DynDevice, Error, Io, Result};

type Answer = Result<Vec<Piece>>;

/// What the layer, its reads and its tasks share.
pub(super) struct Shared {
    pub(super) source: DynDevice,
    pub(super) drive: DynDevice,
    ledger: Arc<dyn Ledger>,
    state: Mutex<State>,
    /// Where tasks run. Reads may come from threads that belong to no runtime.
    runtime: Handle,
    started: Instant,
    progress: watch::Sender<Progress>,
    /// The drive has everything; the engine need not be asked any more.
    whole: AtomicBool,
    /// Something happened, so that the time of the next wake-up may be another.
    happened: Notify,
    /// A write has ended, one way or the other.
    written: Notify,
    /// Nothing more is fetched.
    over: watch::Sender<bool>,
    /// Held by who records coverage, so that no record replaces a newer one. True once the last was made.
    closed: tokio::sync::Mutex<bool>,
}

struct State {
    engine: Engine,
    waiting: BTreeMap<ReadId, oneshot::Sender<Answer>>,
}

/// How a read is answered.
pub(super) enum Asked {
    Now(Answer),
    Later(Waiting),
}

impl Shared {
    pub(super) fn start(source: DynDevice, drive: DynDevice, ledger: Arc<dyn Ledger>, engine: Engine) -> Arc<Self> {
        let shared = Arc::new(Self {
            source,
            drive,
            ledger,
            progress: watch::Sender::new(engine.progress().clone()),
            state: Mutex::new(State { engine, waiting: BTreeMap::new() }),
            runtime: Handle::current(),
            started: Instant::now(),
            whole: AtomicBool::new(false),
            happened: Notify::new(),
            written: Notify::new(),
            over: watch::Sender::new(false),
            closed: tokio::sync::Mutex::new(false),
        });
        shared.runtime.spawn(keep_going(Arc::clone(&shared)));
        shared
    }

    pub(super) fn engine(&self) -> MappedMutexGuard<'_, Engine> {
        MutexGuard::map(self.state.lock(), |state| &mut state.engine)
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Somebody wants a range.
    pub(super) fn read(self: &Arc<Self>, range: ByteRange) -> Asked {
        let (now, mut actions) = (self.started.elapsed(), Vec::new());
        let mut state = self.state.lock();
        let id = match state.engine.read(range, now, &mut actions) {
            // Nothing has changed by that, so there is nothing else to do.
            Plan::Now(answer) => return Asked::Now(answer),
            Plan::Wait(id) => id,
        };
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(id, sender);
        self.settle(&mut state, now, actions);
        drop(state);
        self.happened.notify_one();
        Asked::Later(Waiting { shared: Arc::clone(self), id, receiver })
    }

    /// What the drive has there is not to be served any more.
    pub(super) fn forget(self: &Arc<Self>, ranges: &[ByteRange]) {
        self.happen(|engine, _, _| ranges.iter().for_each(|range| engine.unlearn(*range)));
    }

    /// Lets an event happen, and does what comes of it.
    fn happen(self: &Arc<Self>, event: impl FnOnce(&mut Engine, Duration, &mut Vec<Action>)) {
        let (now, mut actions) = (self.started.elapsed(), Vec::new());
        let mut state = self.state.lock();
        event(&mut state.engine, now, &mut actions);
        self.settle(&mut state, now, actions);
        drop(state);
        self.happened.notify_one();
    }

    /// Starts what can be started, until when there is nothing to do unless something happens.
    fn pump(self: &Arc<Self>) -> Option<Instant> {
        let now = self.started.elapsed();
        let mut state = self.state.lock();
        self.settle(&mut state, now, Vec::new());
        state.engine.wakes_at(now).map(|at| self.started + at)
    }

    fn settle(self: &Arc<Self>, state: &mut State, now: Duration, mut actions: Vec<Action>) {
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

    fn perform(self: &Arc<Self>, action: Action, state: &mut State) {
        let shared = Arc::clone(self);
        match action {
            Action::Fetch(id, range) => drop(self.runtime.spawn(shared.fetch(id, range))),
            Action::Write(id, range, data) => drop(self.runtime.spawn(shared.write(id, range, data))),
            Action::Flush => drop(self.runtime.spawn(shared.flush())),
            Action::Record(coverage) => drop(self.runtime.spawn(shared.record(coverage))),
            Action::Answer(id, answer) => {
                if let Some(sender) = state.waiting.remove(&id) {
                    // A reader that has gone away meanwhile needs no answer.
                    let _ = sender.send(answer);
                }
            }
        }
    }

    async fn fetch(self: Arc<Self>, id: FlightId, range: ByteRange) {
        let mut over = self.over.subscribe();
        let over = pin!(async move { drop(over.wait_for(|over| *over).await) });
        let outcome = match select(self.source.read(range), over).await {
            Either::Left((outcome, _)) => outcome,
            // Nobody waits for it any more.
            Either::Right(_) => return,
        };
        if let Some(data) = outcome.as_ref().ok().filter(|data| data.len() == range.len) {
            self.ledger.passed(range, data);
        }
        self.happen(|engine, now, actions| engine.fetched(id, outcome, now, actions));
    }

    async fn write(self: Arc<Self>, id: FlightId, range: ByteRange, data: Data) {
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
        let outcome = self.ledger.record(coverage).await;
        if let Err(error) = &outcome {
            tracing::warn!("what has been copied could not be recorded: {error}");
        }
        self.happen(|engine, now, _| engine.recorded(&outcome, now));
    }

    /// Fetches nothing more.
    pub(super) fn stop(self: &Arc<Self>) {
        let why = Error::Invalid("the drive is being closed".into());
        self.happen(|engine, _, actions| engine.stop(why, actions));
        self.over.send_replace(true);
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
        self.ledger.record(coverage).await
    }
}

/// Wakes the engine up when it is time.
async fn keep_going(shared: Arc<Shared>) {
    let mut over = shared.over.subscribe();
    loop {
        let wakes_at = shared.pump();
        let alarm = async {
            match wakes_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = alarm => {}
            () = shared.happened.notified() => {}
            _ = over.wait_for(|over| *over) => return,
        }
    }
}

/// A read that waits. Dropped, it waits no longer.
pub(super) struct Waiting {
    shared: Arc<Shared>,
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

/// Puts an answer together.
pub(super) fn gather(drive: &DynDevice, mut pieces: Vec<Piece>) -> Io<'_, Data> {
    let fetch = move |piece| match piece {
        Piece::There(range) => drive.read(range),
        Piece::Here(data) => Io::ok(data),
    };
    if pieces.len() <= 1 {
        return pieces.pop().map_or_else(|| Io::ok(Data::new()), fetch);
    }
    Io::later(async move {
        let mut whole = Data::new();
        for part in try_join_all(pieces.into_iter().map(fetch)).await? {
            whole.append(part);
        }
        Ok(whole)
    })
}
