//! The task that owns a logical unit's connection: it sends commands, detects a silent target, and reconnects.
//!
//! Time-outs depend on *progress*: the oldest outstanding command returned new data or completed. With progress,
//! commands wait as long as the connection needs. Without progress for the time-out, over any number of connections,
//! all outstanding commands fail. Therefore a slow connection does not count as a failure, but a target that sends only
//! wrong answers does.
//!
//! A target that closes the connection may do so because of one of the commands, instead of answering it. So these are not
//! repeated here: their callers are told, find the command, and repeat the others.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cheetah_device::fatal_reads::ByAddress;
use cheetah_device::reconnect::{Backoff, Losses, PAUSE_MAX, ticker};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, sleep, timeout};

use crate::connection::{ConnectionError, IscsiConnection};
use crate::inquiry::{Identity, identify};
use crate::login::LoginParameters;
use crate::scsi::Cdb;
use crate::session::Outcome;
use crate::uri::{IscsiUri, Unit};

/// An initiator that must recognise its disk is replaced after each loss.
static LOSSES: ByAddress<Losses> = ByAddress::new();

/// The address of a logical unit and the parameters of its connection.
#[derive(Debug, Clone)]
pub(crate) struct UnitAddress {
    pub uri: IscsiUri,
    pub unit: Unit,
    pub parameters: LoginParameters,
    pub name: Arc<str>,
    pub timeout: Duration,
    pub in_flight_max: usize,
}

impl UnitAddress {
    /// Connects, logs in and identifies the logical unit, all within `limit`.
    pub async fn open(&self, limit: Duration) -> Result<(IscsiConnection, Identity), ConnectionError> {
        let open = async {
            let mut connection =
                IscsiConnection::open(&self.uri, self.parameters.clone(), self.unit.lun, self.in_flight_max).await?;
            let identity = identify(&mut connection).await?;
            Ok((connection, identity))
        };
        timeout(limit, open).await.unwrap_or(Err(ConnectionError::Silent(limit)))
    }
}

/// A command, and the channel for its outcome.
pub(crate) struct Call {
    pub cdb: Cdb,
    /// The maximum number of bytes it returns.
    pub len: u32,
    /// Receives the outcome.
    pub reply: oneshot::Sender<Result<Outcome, Unanswered>>,
}

/// Why a command has no outcome.
pub(crate) enum Unanswered {
    /// The connection that it was in flight on was closed. When there was progress last.
    Disconnected(Instant),
    /// The target is lost.
    Lost(Arc<str>),
}

/// A call, and the maximum number of bytes any attempt has returned.
struct Pending {
    call: Call,
    best: usize,
}

/// The connection's task; see the module.
pub(crate) struct ConnectionTask {
    route: UnitAddress,
    identity: Identity,
    trust_reconnects: bool,
    calls: mpsc::UnboundedReceiver<Call>,
    /// Unsent calls, in order.
    queue: VecDeque<Pending>,
    /// In-flight calls, in order, with their tags.
    sent: VecDeque<(u32, Pending)>,
    progress_at: Instant,
    /// The last failure since there was progress.
    why: Option<Arc<str>>,
    backoff: Backoff,
    losses: Arc<Losses>,
}

/// The reason a connection ended.
enum End {
    /// All callers are gone.
    Closed,
    /// It failed; a new one is needed.
    Broken(ConnectionError),
}

enum Event {
    Call(Option<Call>),
    Received,
    Tick,
}

impl ConnectionTask {
    pub fn new(
        route: UnitAddress,
        identity: Identity,
        trust_reconnects: bool,
        calls: mpsc::UnboundedReceiver<Call>,
    ) -> Self {
        let address = route.uri.to_string();
        Self {
            route,
            identity,
            trust_reconnects,
            calls,
            queue: VecDeque::new(),
            sent: VecDeque::new(),
            progress_at: Instant::now(),
            why: None,
            backoff: Backoff::default(),
            losses: LOSSES.of(address),
        }
    }

    /// Runs until the other end of `calls` is dropped.
    pub async fn run(mut self, connection: IscsiConnection) {
        let mut next = Some(connection);
        loop {
            let connection = match next.take() {
                Some(connection) => connection,
                None => match self.reopen().await {
                    Some(connection) => connection,
                    None => return,
                },
            };
            match self.serve(connection).await {
                End::Closed => return,
                End::Broken(why) => {
                    self.losses.log(&self.route.name, &why.to_string());
                    if matches!(why, ConnectionError::Closed | ConnectionError::Io(_)) {
                        self.tell_disconnected();
                    }
                    if !self.trust_reconnects {
                        return self.fail_for_good(format!("connection lost: {why}").into()).await;
                    }
                    self.why = Some(why.to_string().into());
                    // Commands that were in flight are sent first.
                    while let Some((_, pending)) = self.sent.pop_back() {
                        self.queue.push_front(pending);
                    }
                }
            }
        }
    }

    /// Serves one connection until it ends.
    async fn serve(&mut self, mut connection: IscsiConnection) -> End {
        let mut tick = ticker(self.route.timeout);
        let mut heard = Instant::now();
        loop {
            self.submit(&mut connection);
            match self.next(&mut connection, &mut tick).await {
                Ok(Event::Call(None)) => {
                    connection.say_goodbye();
                    return End::Closed;
                }
                Ok(Event::Call(Some(call))) => self.enqueue(call),
                Ok(Event::Received) => {
                    heard = Instant::now();
                    if let Err(error) = self.settle(&mut connection) {
                        return End::Broken(error);
                    }
                }
                Ok(Event::Tick) => {
                    if let Err(error) = self.look_at_time(&mut connection, heard) {
                        return End::Broken(error);
                    }
                }
                Err(error) => return End::Broken(error),
            }
        }
    }

    /// Waits for the next event.
    async fn next(&mut self, connection: &mut IscsiConnection, tick: &mut Interval) -> Result<Event, ConnectionError> {
        poll_fn(|cx| {
            // The timer first: a stream of other answers must not hide a command that is never answered.
            if tick.poll_tick(cx).is_ready() {
                return Poll::Ready(Ok(Event::Tick));
            }
            if let Poll::Ready(call) = self.calls.poll_recv(cx) {
                return Poll::Ready(Ok(Event::Call(call)));
            }
            connection.poll(cx).map_ok(|()| Event::Received)
        })
        .await
    }

    /// Queues a call and all others that are ready, so that one system call sends them.
    fn enqueue(&mut self, call: Call) {
        if self.queue.is_empty() && self.sent.is_empty() {
            self.progress_at = Instant::now();
        }
        self.queue.push_back(Pending { call, best: 0 });
        while let Ok(call) = self.calls.try_recv() {
            self.queue.push_back(Pending { call, best: 0 });
        }
    }

    /// Submits as many calls as the session has room for.
    fn submit(&mut self, connection: &mut IscsiConnection) {
        while connection.session.has_room()
            && let Some(pending) = self.queue.pop_front()
        {
            // The caller may be gone.
            if !pending.call.reply.is_closed() {
                let itt = connection.session.submit(&pending.call.cdb, pending.call.len, &mut connection.out);
                self.sent.push_back((itt, pending));
            }
        }
    }

    /// Delivers outcomes, and records progress.
    fn settle(&mut self, connection: &mut IscsiConnection) -> Result<(), ConnectionError> {
        let ended = std::mem::take(&mut connection.ended);
        let mut changed = None;
        for (itt, outcome) in ended {
            let Some(index) = self.sent.iter().position(|(sent, _)| *sent == itt) else { continue };
            if let Outcome::Check(sense, _) = &outcome
                && sense.tells_of_change()
            {
                // It stays in flight, and is repeated on the next connection if the unit is the same.
                changed = Some(ConnectionError::Unusable(format!("the logical unit may have changed: {sense}")));
                continue;
            }
            if let Some((_, pending)) = self.sent.remove(index) {
                // The caller may be gone.
                let _ = pending.call.reply.send(Ok(outcome));
            }
            if index == 0 {
                self.progressed();
            }
        }
        if let Some((itt, pending)) = self.sent.front_mut() {
            let verified = connection.session.verified(*itt);
            if verified > pending.best {
                pending.best = verified;
                self.progressed();
            }
        }
        changed.map_or(Ok(()), Err)
    }

    fn progressed(&mut self) {
        self.progress_at = Instant::now();
        self.why = None;
        self.backoff = Backoff::default();
    }

    fn look_at_time(&mut self, connection: &mut IscsiConnection, heard: Instant) -> Result<(), ConnectionError> {
        if self.give_up() {
            return Err(ConnectionError::Silent(self.route.timeout));
        }
        let quiet = heard.max(self.progress_at).elapsed();
        if !self.sent.is_empty() && quiet >= self.route.timeout / 2 {
            // The connection is dead, and half of the time-out is left for a new one.
            return Err(ConnectionError::Silent(quiet));
        }
        if !self.sent.is_empty() && quiet >= self.route.timeout / 4 {
            // A slow disk delays a command's answer, but a live target answers a ping.
            connection.session.ping(&mut connection.out);
        }
        Ok(())
    }

    /// Fails all outstanding calls if there was no progress for the time-out.
    fn give_up(&mut self) -> bool {
        let waiting = !(self.queue.is_empty() && self.sent.is_empty());
        if !waiting || self.progress_at.elapsed() < self.route.timeout {
            return false;
        }
        let silence = || format!("no answer for {:?}", self.route.timeout).into();
        let why = self.why.clone().unwrap_or_else(silence);
        self.fail_all(&why);
        true
    }

    fn fail_all(&mut self, why: &Arc<str>) {
        let sent = self.sent.drain(..).map(|(_, pending)| pending);
        for pending in sent.chain(self.queue.drain(..)) {
            let _ = pending.call.reply.send(Err(Unanswered::Lost(Arc::clone(why))));
        }
    }

    /// Returns the calls in flight to their callers.
    fn tell_disconnected(&mut self) {
        for (_, pending) in self.sent.drain(..) {
            let _ = pending.call.reply.send(Err(Unanswered::Disconnected(self.progress_at)));
        }
    }

    /// Reconnects, with any number of attempts. `None` once all callers are gone.
    async fn reopen(&mut self) -> Option<IscsiConnection> {
        loop {
            let pause = self.backoff.next_pause();
            self.watching(sleep(pause)).await?;
            let route = self.route.clone();
            // A short time-out fails the calls that wait now; an attempt may still succeed for later ones.
            match self.watching(route.open(route.timeout.max(PAUSE_MAX))).await? {
                Ok((connection, identity)) => match self.identity.inquiry.difference(&identity.inquiry) {
                    None => {
                        tracing::info!("{}: connected again", self.route.name);
                        return Some(connection);
                    }
                    Some(difference) => {
                        connection.say_goodbye();
                        self.refuse(&difference).await;
                        return None;
                    }
                },
                Err(error) => {
                    tracing::debug!("{}: cannot connect again: {error}", self.route.name);
                    self.why = Some(error.to_string().into());
                }
            }
        }
    }

    /// Runs `attempt` while it accepts calls and fails overdue ones. `None` once all callers are gone.
    async fn watching<T>(&mut self, attempt: impl Future<Output = T>) -> Option<T> {
        let mut tick = ticker(self.route.timeout);
        let mut attempt = pin!(attempt);
        poll_fn(|cx| {
            while tick.poll_tick(cx).is_ready() {
                self.give_up();
            }
            while let Poll::Ready(call) = self.calls.poll_recv(cx) {
                match call {
                    Some(call) => self.enqueue(call),
                    None => return Poll::Ready(None),
                }
            }
            attempt.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Fails all calls from now on.
    async fn refuse(&mut self, difference: &str) {
        let why: Arc<str> = format!("another logical unit answers in its place: {difference}").into();
        tracing::error!("{}: gone for good: {why}", self.route.name);
        self.fail_for_good(why).await;
    }

    async fn fail_for_good(&mut self, why: Arc<str>) {
        self.fail_all(&why);
        while let Some(call) = self.calls.recv().await {
            let _ = call.reply.send(Err(Unanswered::Lost(Arc::clone(&why))));
        }
    }
}
