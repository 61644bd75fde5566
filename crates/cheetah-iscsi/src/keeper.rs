//! The task that keeps a logical unit's connection: sends commands, notices silence, and connects again.
//!
//! Whether anything is still to be hoped for is judged by *progress*: the command that has waited longest returned
//! something it had not returned before, or ended. While there is progress, commands wait as long as the link needs;
//! once there has been none for the timeout, on however many connections, all that wait fail. So a slow link is no
//! failure, and a target that answers everything but never right is one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};

use crate::inquiry::{Identity, identify};
use crate::link::{Link, LinkError};
use crate::login::Wish;
use crate::scsi::Cdb;
use crate::session::Outcome;
use crate::uri::{IscsiUri, Unit};

/// The first pause before connecting again; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How to reach a logical unit, again if need be.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub uri: IscsiUri,
    pub unit: Unit,
    pub wish: Wish,
    pub name: Arc<str>,
    pub timeout: Duration,
    pub in_flight_max: usize,
}

impl Route {
    /// Connects, logs in, and asks the logical unit what it is, all within `limit`.
    pub async fn open(&self, limit: Duration) -> Result<(Link, Identity), LinkError> {
        let open = async {
            let mut link = Link::open(&self.uri, self.wish.clone(), self.unit.lun, self.in_flight_max).await?;
            let identity = identify(&mut link).await?;
            Ok((link, identity))
        };
        timeout(limit, open).await.unwrap_or(Err(LinkError::Silent(limit)))
    }
}

/// A command that someone waits for.
pub(crate) struct Call {
    pub cdb: Cdb,
    /// The most bytes it returns.
    pub len: u32,
    /// How it ended, or why it will not.
    pub reply: oneshot::Sender<Result<Outcome, Arc<str>>>,
}

/// A call, and the most that any attempt at it has returned.
struct Pending {
    call: Call,
    best: usize,
}

/// Keeps the connection; see the module.
pub(crate) struct Keeper {
    route: Route,
    identity: Identity,
    calls: mpsc::UnboundedReceiver<Call>,
    /// Not sent yet, in order.
    queue: VecDeque<Pending>,
    /// Sent, in order, with their tags.
    sent: VecDeque<(u32, Pending)>,
    progress_at: Instant,
    /// What went wrong since there was progress.
    why: Option<Arc<str>>,
    pause: Duration,
}

/// Why a connection is not carried on.
enum End {
    /// Nobody needs it any more.
    Closed,
    /// Another is needed.
    Broken(LinkError),
}

enum Event {
    Call(Option<Call>),
    Received,
    Tick,
}

impl Keeper {
    pub fn new(route: Route, identity: Identity, calls: mpsc::UnboundedReceiver<Call>) -> Self {
        Self {
            route,
            identity,
            calls,
            queue: VecDeque::new(),
            sent: VecDeque::new(),
            progress_at: Instant::now(),
            why: None,
            pause: Duration::ZERO,
        }
    }

    /// Runs until nobody holds the other end of `calls`.
    pub async fn keep(mut self, link: Link) {
        let mut next = Some(link);
        loop {
            let link = match next.take() {
                Some(link) => link,
                None => match self.reopen().await {
                    Some(link) => link,
                    None => return,
                },
            };
            match self.run(link).await {
                End::Closed => return,
                End::Broken(why) => {
                    tracing::warn!("{}: connection lost: {why}", self.route.name);
                    self.why = Some(why.to_string().into());
                    // What was under way comes first again.
                    while let Some((_, pending)) = self.sent.pop_back() {
                        self.queue.push_front(pending);
                    }
                }
            }
        }
    }

    /// Carries one connection until it ends.
    async fn run(&mut self, mut link: Link) -> End {
        let mut tick = self.ticker();
        let mut heard = Instant::now();
        loop {
            self.submit(&mut link);
            match self.next(&mut link, &mut tick).await {
                Ok(Event::Call(None)) => {
                    link.say_goodbye();
                    return End::Closed;
                }
                Ok(Event::Call(Some(call))) => self.enqueue(call),
                Ok(Event::Received) => {
                    heard = Instant::now();
                    if let Err(error) = self.settle(&mut link) {
                        return End::Broken(error);
                    }
                }
                Ok(Event::Tick) => {
                    if let Err(error) = self.look_at_time(&mut link, heard) {
                        return End::Broken(error);
                    }
                }
                Err(error) => return End::Broken(error),
            }
        }
    }

    /// Waits for whatever happens first.
    async fn next(&mut self, link: &mut Link, tick: &mut Interval) -> Result<Event, LinkError> {
        poll_fn(|cx| {
            // Time first, or a stream of other answers could hide a command that is never answered.
            if tick.poll_tick(cx).is_ready() {
                return Poll::Ready(Ok(Event::Tick));
            }
            if let Poll::Ready(call) = self.calls.poll_recv(cx) {
                return Poll::Ready(Ok(Event::Call(call)));
            }
            link.poll(cx).map_ok(|()| Event::Received)
        })
        .await
    }

    /// Takes a call, and all others that are there: then they leave with one system call.
    fn enqueue(&mut self, call: Call) {
        if self.queue.is_empty() && self.sent.is_empty() {
            self.progress_at = Instant::now();
        }
        self.queue.push_back(Pending { call, best: 0 });
        while let Ok(call) = self.calls.try_recv() {
            self.queue.push_back(Pending { call, best: 0 });
        }
    }

    /// Gives the session what there is room for.
    fn submit(&mut self, link: &mut Link) {
        while link.session.has_room()
            && let Some(pending) = self.queue.pop_front()
        {
            // Whoever asked may have gone meanwhile.
            if !pending.call.reply.is_closed() {
                let itt = link.session.submit(&pending.call.cdb, pending.call.len, &mut link.out);
                self.sent.push_back((itt, pending));
            }
        }
    }

    /// Hands out what came, and notices progress.
    fn settle(&mut self, link: &mut Link) -> Result<(), LinkError> {
        let ended = std::mem::take(&mut link.ended);
        let mut changed = None;
        for (itt, outcome) in ended {
            let Some(index) = self.sent.iter().position(|(sent, _)| *sent == itt) else { continue };
            if let Outcome::Check(sense, _) = &outcome
                && sense.tells_of_change()
            {
                // It stays among the sent, and is asked again once it is known what has changed.
                changed = Some(LinkError::Unusable(format!("the logical unit may have changed: {sense}")));
                continue;
            }
            if let Some((_, pending)) = self.sent.remove(index) {
                // It may be that nobody waits any more.
                let _ = pending.call.reply.send(Ok(outcome));
            }
            if index == 0 {
                self.progressed();
            }
        }
        if let Some((itt, pending)) = self.sent.front_mut() {
            let verified = link.session.verified(*itt);
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
        self.pause = Duration::ZERO;
    }

    fn look_at_time(&mut self, link: &mut Link, heard: Instant) -> Result<(), LinkError> {
        if self.give_up() {
            return Err(LinkError::Silent(self.route.timeout));
        }
        let quiet = heard.max(self.progress_at).elapsed();
        if !self.sent.is_empty() && quiet >= self.route.timeout / 2 {
            // A dead connection: another one may still be made in time.
            return Err(LinkError::Silent(quiet));
        }
        if !self.sent.is_empty() && quiet >= self.route.timeout / 4 {
            // A slow disk does not answer; a target that is there does.
            link.session.ping(&mut link.out);
        }
        Ok(())
    }

    /// Fails all that wait, if there was no progress for too long.
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
            let _ = pending.call.reply.send(Err(Arc::clone(why)));
        }
    }

    /// Connects again, however often it takes. `None` once nobody needs it any more.
    async fn reopen(&mut self) -> Option<Link> {
        loop {
            let pause = self.pause;
            self.pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.watching(sleep(pause)).await?;
            let route = self.route.clone();
            // With a short timeout whoever waits now is lost, but whoever comes later need not be.
            match self.watching(route.open(route.timeout.max(PAUSE_MAX))).await? {
                Ok((link, identity)) => match self.identity.inquiry.difference(&identity.inquiry) {
                    None => {
                        tracing::info!("{}: connected again", self.route.name);
                        return Some(link);
                    }
                    Some(difference) => {
                        link.say_goodbye();
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

    /// Runs `attempt` while taking calls, and failing those that wait too long. `None` if nobody calls any more.
    async fn watching<T>(&mut self, attempt: impl Future<Output = T>) -> Option<T> {
        let mut tick = self.ticker();
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

    /// Fails everything from now on.
    async fn refuse(&mut self, difference: &str) {
        let why: Arc<str> = format!("another logical unit answers in its place: {difference}").into();
        tracing::error!("{}: gone for good: {why}", self.route.name);
        self.fail_all(&why);
        while let Some(call) = self.calls.recv().await {
            let _ = call.reply.send(Err(Arc::clone(&why)));
        }
    }

    /// How often time is looked at: often enough that nothing outlives its timeout by much.
    fn ticker(&self) -> Interval {
        let mut tick = interval((self.route.timeout / 20).clamp(Duration::from_millis(1), Duration::from_millis(500)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick
    }
}
