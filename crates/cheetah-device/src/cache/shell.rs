//! What runs the [`Engine`]: it asks the device, waits, and reports back. Every fetch is held by a guard, so that it is
//! reported also when a future is dropped half-way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, select};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Urgency;
use super::engine::{Engine, Fetch, Fetches, Piece, Pieces, Plan};
use super::keeper::Keeper;
use super::shelf::{FetchId, Found};
use super::stats::CacheStats;
use crate::{ByteRange, Data, DynDevice, Error, Result};

/// How often a read asks again for what somebody else could not read, before it asks the device past everybody.
const TRIES_MAX: u32 = 3;

/// What the layer, the reads and the fetches under way share.
pub(super) struct Shared {
    pub(super) inner: DynDevice,
    engine: Mutex<Engine>,
    keeper: Option<Keeper>,
    /// Where fetches run. Reads may come from threads that belong to no runtime.
    runtime: Handle,
    started: Instant,
    closed: AtomicBool,
    closing: Notify,
}

impl Shared {
    /// Fetches run on the runtime this is called in.
    pub(super) fn new(inner: DynDevice, engine: Engine, keeper: Option<Keeper>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            engine: Mutex::new(engine),
            keeper,
            runtime: Handle::current(),
            started: Instant::now(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
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
        self.started.elapsed()
    }

    pub(super) fn read(&self, range: ByteRange, counts: bool) -> Plan {
        let plan = self.engine.lock().read(range, counts, self.now());
        if counts && let Plan::Gather(pieces) = &plan {
            let missing = pieces.iter().filter(|piece| matches!(piece, Piece::Missing { .. })).count();
            tracing::debug!(%range, missing, "a read waits for the link");
        }
        plan
    }

    /// Puts a wish on the queue; told when it is here or on its way.
    pub(super) fn wish(self: &Arc<Self>, range: ByteRange, urgency: Urgency) -> (oneshot::Receiver<()>, Flights) {
        let (sender, receiver) = oneshot::channel();
        let flights = {
            let mut engine = self.engine.lock();
            engine.wish(range, urgency, Some(sender));
            self.pump(&mut engine)
        };
        (receiver, flights)
    }

    pub(super) fn hint(self: &Arc<Self>, range: ByteRange, urgency: Urgency) {
        let (_, flights) = self.wish(range, urgency);
        launch(flights);
    }

    pub(super) async fn bring(self: &Arc<Self>, range: ByteRange, urgency: Urgency) {
        let (told, flights) = self.wish(range, urgency);
        launch(flights);
        // An error says that the wish was forgotten, which wishes may be.
        let _ = told.await;
    }

    fn pump(self: &Arc<Self>, engine: &mut Engine) -> Flights {
        if self.is_closed() {
            return Flights::new();
        }
        let mut fetches = Fetches::new();
        engine.pump(self.now(), &mut fetches);
        fetches.into_iter().map(|fetch| self.flight(fetch)).collect()
    }

    /// Starts what hints there is room for.
    fn go_on(self: &Arc<Self>) {
        let flights = self.pump(&mut self.engine.lock());
        launch(flights);
    }

    fn flight(self: &Arc<Self>, fetch: Fetch) -> Flight {
        Flight { shared: Arc::clone(self), fetch, data: None }
    }

    /// Gives up all fetches.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn stored(&self, id: FetchId, range: ByteRange, digests: Option<Arc<[u64]>>) {
        let mut engine = self.engine.lock();
        match digests {
            Some(digests) => engine.stored(id, range, digests),
            None => engine.not_stored(id, range),
        }
    }

    /// Hands the file's keeper what has arrived, and what was dropped to make room, in this order: under the lock, so
    /// that a place is never written before it is emptied.
    fn keep(self: &Arc<Self>, engine: &mut Engine, fetch: &Fetch, data: Option<Data>) {
        let Some(keeper) = &self.keeper else { return drop(engine.take_dropped()) };
        if let Some(data) = data.filter(|data| !is_hole(data))
            && !keeper.keep(Arc::downgrade(self), fetch.id, fetch.range, data)
        {
            engine.not_stored(fetch.id, fetch.range);
        }
        engine.take_dropped().into_iter().for_each(|range| keeper.drop(range));
    }

    /// A piece that is known, or another try where it cannot be had so.
    async fn found(self: &Arc<Self>, found: Found, tries: u32) -> Result<Data> {
        match found {
            Found::Here(data) => Ok(data),
            Found::Flying { landing, part, range } => match landing.part(part).await {
                Some(data) => Ok(data),
                None => self.again(range, tries).await,
            },
            Found::Stored { id, whole, part, digests } => match self.read_stored(whole, part, digests).await {
                Some(data) => Ok(data),
                None => {
                    if self.engine.lock().spoilt(id, whole) {
                        tracing::warn!("the cache's file came back different at {whole}; it is fetched again");
                    }
                    self.again(part, tries).await
                }
            },
            // Not made: see `Piece::Found`.
            Found::Absent(range) => self.inner.read(range).await,
        }
    }

    async fn read_stored(&self, whole: ByteRange, part: ByteRange, digests: Arc<[u64]>) -> Option<Data> {
        let store = self.keeper.as_ref()?.store();
        let read = self.runtime.spawn_blocking(move || store.read(whole, part, &digests));
        read.await.ok().flatten()
    }

    /// Reads what somebody else could not, or what was lost.
    fn again(self: &Arc<Self>, range: ByteRange, tries: u32) -> BoxFuture<'_, Result<Data>> {
        Box::pin(async move {
            if tries >= TRIES_MAX {
                return self.inner.read(range).await;
            }
            let plan = self.engine.lock().read(range, false, self.now());
            match plan {
                Plan::Hit(data) => Ok(data),
                Plan::Gather(pieces) => gather_tried(self, parts(self, pieces), tries + 1).await,
            }
        })
    }
}

/// Answers a read from its pieces.
pub(super) fn gather(shared: &Arc<Shared>, pieces: Pieces) -> impl Future<Output = Result<Data>> + Send + '_ {
    let parts = parts(shared, pieces);
    gather_tried(shared, parts, 0)
}

/// A piece of an answer.
enum Part {
    Found(Found),
    /// Held by its guard from the start: who never polls the answer has to let go of it, too.
    Missing {
        flight: Flight,
        part: ByteRange,
    },
}

/// Takes hold of what is to be fetched, at once.
fn parts(shared: &Arc<Shared>, pieces: Pieces) -> Vec<Part> {
    let part = |piece| match piece {
        Piece::Found(found) => Part::Found(found),
        Piece::Missing { fetch, part } => Part::Missing { flight: shared.flight(fetch), part },
    };
    pieces.into_iter().map(part).collect()
}

async fn gather_tried(shared: &Arc<Shared>, parts: Vec<Part>, tries: u32) -> Result<Data> {
    let parts = parts.into_iter().map(|part| async move {
        match part {
            Part::Found(found) => shared.found(found, tries).await,
            Part::Missing { flight, part } => {
                let data = fly(flight).await?;
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

/// Fetches that may be [`launch`]ed.
pub(super) type Flights = Vec<Flight>;

/// A fetch, on its way or about to be. However it ends, it lands, so that no reader waits for ever.
pub(super) struct Flight {
    shared: Arc<Shared>,
    fetch: Fetch,
    data: Option<Data>,
}

/// Starts them.
pub(super) fn launch(flights: Flights) {
    for flight in flights {
        let runtime = flight.shared.runtime.clone();
        runtime.spawn(async move {
            let range = flight.fetch.range;
            if let Err(error) = fly(flight).await {
                tracing::debug!(%range, %error, "a hint could not be followed");
            }
        });
    }
}

async fn fly(mut flight: Flight) -> Result<Data> {
    let shared = Arc::clone(&flight.shared);
    let range = flight.fetch.range;
    // Made before looking, so that a closing in between is not missed.
    let closing = shared.closing.notified();
    if shared.is_closed() {
        return Err(Error::Invalid("the cache is closed".into()));
    }
    let outcome = match select(shared.inner.read(range), pin!(closing)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => return Err(Error::Invalid("the cache is closed".into())),
    };
    let outcome = outcome.and_then(|data| match data.len() == range.len {
        true => Ok(data),
        false => Err(Error::Invalid(format!("{range} was answered with {} bytes", data.len()).into())),
    });
    flight.data = outcome.as_ref().ok().cloned();
    drop(flight);
    shared.go_on();
    outcome
}

impl Drop for Flight {
    fn drop(&mut self) {
        let (data, shared) = (self.data.take(), &self.shared);
        let mut engine = shared.engine.lock();
        engine.fetched(&self.fetch, data.clone(), shared.now());
        shared.keep(&mut engine, &self.fetch, data);
    }
}

/// Whether it takes no memory to keep.
fn is_hole(data: &Data) -> bool {
    data.parts().iter().all(|part| matches!(part, crate::data::Part::Zeros(_)))
}
