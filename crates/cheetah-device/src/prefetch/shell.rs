//! What runs the [`Engine`]: it asks the device, waits, and reports back. Everything that must be reported is
//! held by a guard, so that it is reported also when a future is dropped half-way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::cache::{Piece, Pieces};
use super::engine::{Engine, Fetch, Fetches, Outcome};
use super::stats::PrefetchStats;
use super::writes::WriteId;
use crate::link_estimate::TrackedRequest;
use crate::{ByteRange, Data, DynDevice, Error, Io, Result};

/// What the layer, the reads and the fetches under way share.
pub(super) struct Shared {
    pub(super) inner: DynDevice,
    engine: Mutex<Engine>,
    /// Where fetches run. Reads may come from threads that belong to no runtime.
    runtime: Handle,
    started: Instant,
    /// The device answered the last read at once: there is nothing to be gained by fetching from it ahead.
    instant: AtomicBool,
    closed: AtomicBool,
    closing: Notify,
}

impl Shared {
    /// Fetches run on the runtime this is called in.
    pub(super) fn new(inner: DynDevice, engine: Engine) -> Self {
        Self {
            inner,
            engine: Mutex::new(engine),
            runtime: Handle::current(),
            started: Instant::now(),
            instant: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    pub(super) fn stats(&self) -> PrefetchStats {
        self.engine.lock().stats()
    }

    /// Lets an event happen, and wraps the fetches that come of it.
    pub(super) fn with_engine<T>(
        self: &Arc<Self>,
        event: impl FnOnce(&mut Engine, Duration, &mut Fetches) -> T,
    ) -> (T, Flights) {
        let now = self.now();
        let mut fetches = Fetches::new();
        let answer = event(&mut self.engine.lock(), now, &mut fetches);
        let flight = |fetch| Flight { shared: Arc::clone(self), fetch, outcome: Outcome::GivenUp };
        (answer, fetches.into_iter().map(flight).collect())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Hands a read on as it is, and notes whether the device had the answer at hand.
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

    /// Gives up all fetches.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    async fn piece(&self, piece: Piece) -> Result<Data> {
        match piece {
            Piece::Here(data) => Ok(data),
            Piece::Missing(range) => self.inner.read(range).await,
            Piece::Flying { landing, part, range } => match landing.part(part).await {
                Some(data) => Ok(data),
                None => self.inner.read(range).await,
            },
        }
    }
}

/// Answers a read from its pieces: asks for what is not here, then lets the fetches go, then waits for it all.
pub(super) async fn gather(mut demand: Demand<'_>, pieces: Pieces, flights: Flights) -> Result<Data> {
    let shared = demand.shared;
    let mut parts = pin!(join_all(pieces.into_iter().map(|piece| shared.piece(piece))));
    let early = futures::poll!(&mut parts);
    launch(flights);
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

/// A read's share of the link, given back when the read is over.
pub(super) struct Demand<'a> {
    shared: &'a Arc<Shared>,
    sent: TrackedRequest,
    /// It came from the device.
    crossed: bool,
}

impl<'a> Demand<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, sent: TrackedRequest) -> Self {
        Self { shared, sent, crossed: false }
    }
}

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        let ((), flights) = self.shared.with_engine(|engine, now, fetches| {
            engine.demanded(self.sent, self.crossed, now);
            engine.fetch_more(now, fetches);
        });
        launch(flights);
    }
}

/// Fetches that may be [`launch`]ed.
pub(super) type Flights = Vec<Flight>;

/// A fetch, on its way or about to be. However it ends, it lands, so that no reader waits for ever.
pub(super) struct Flight {
    shared: Arc<Shared>,
    fetch: Fetch,
    outcome: Outcome,
}

/// Starts them.
pub(super) fn launch(flights: Flights) {
    for flight in flights {
        let runtime = flight.shared.runtime.clone();
        runtime.spawn(fly(flight));
    }
}

async fn fly(mut flight: Flight) {
    let shared = Arc::clone(&flight.shared);
    // Made before looking, so that a closing in between is not missed.
    let closing = shared.closing.notified();
    if shared.is_closed() {
        return;
    }
    let read = shared.inner.read(flight.fetch.range);
    let at_hand = matches!(read, Io::Done(_));
    flight.outcome = match select(read, pin!(closing)).await {
        Either::Left((Ok(data), _)) if at_hand => Outcome::AtHand(data),
        Either::Left((Ok(data), _)) => Outcome::Arrived(data),
        Either::Left((Err(error), _)) => {
            tracing::debug!(range = %flight.fetch.range, %error, "fetching ahead failed");
            Outcome::Failed
        }
        Either::Right(_) => return,
    };
    drop(flight);
    let ((), flights) = shared.with_engine(|engine, now, fetches| engine.fetch_more(now, fetches));
    launch(flights);
}

impl Drop for Flight {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::GivenUp);
        self.shared.engine.lock().fetched(&self.fetch, outcome, self.shared.now());
    }
}

/// A write of any kind under way; it ends when dropped.
pub(super) struct Change<'a> {
    shared: &'a Shared,
    id: WriteId,
    /// How it went is known, and nothing will change any more.
    settled: bool,
}

impl<'a> Change<'a> {
    /// To be called before the device is asked to change anything.
    pub(super) fn begin(shared: &'a Shared, range: ByteRange) -> Self {
        Self { shared, id: shared.engine.lock().write_begins(range), settled: false }
    }

    /// Waits for the change, and ends with it.
    pub(super) fn around(self, io: Io<'a, ()>) -> Io<'a, ()> {
        match io {
            Io::Done(result) => {
                // Refused on the spot, before anything was sent: nothing changed and nothing will.
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

    /// An error, whichever it is, settles nothing: it may stand for several requests, one refused and reported,
    /// another lost, of which nobody knows what it did or will yet do.
    fn end(mut self, settled: bool) {
        self.settled = settled;
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.shared.engine.lock().write_ends(self.id, self.settled);
    }
}
