//! The task of a connection: negotiates, receives, detects silence, and reconnects.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::receive::{INPUT_LEN, Target};
use cheetah_device::reconnect::{Backoff, PAUSE_MAX, tick_of, ticker};
use cheetah_tls::{Standing, Transport};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, sleep, timeout};

use super::Shared;
use super::handle::{ConnectionHandle, Written};
use super::health::Refused;
use super::receive::Receiver;
use super::stream::{Destination, Dialled, ReadHalf, WriteHalf, dial};
use crate::handshake::client::{Agreement, ClientHandshake, ExportRequest, Failure, Step};
use crate::proto::{Command, CommandFlags, Request, Violation};
use crate::uri::Address;

/// A server whose round trip takes this long is far.
const FAR: Duration = Duration::from_millis(2);
/// A server is far if TLS takes this long: three round trips, and computing.
const FAR_TLS: Duration = Duration::from_millis(10);

/// A connection after its handshake.
pub(super) struct Opened {
    pub agreement: Agreement,
    pub transport: Transport,
    standing: Option<Standing>,
    reader: ReadHalf,
    writer: WriteHalf,
    /// Bytes received beyond the handshake.
    input: BytesMut,
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{}", cheetah_device::os_error::describe(.0))]
    Io(#[from] io::Error),
    #[error(transparent)]
    Negotiation(#[from] Failure),
    /// The server's machine accepted the connection, and the server did not answer.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("no connection within {0:?}")]
    NoConnection(Duration),
}

/// Connects and negotiates.
pub(super) async fn open(to: &Destination, wanted: &ExportRequest, limit: Duration) -> Result<Opened, OpenError> {
    open_with(to, wanted, limit, || ()).await
}

/// The same; calls `is_far` as soon as the server turns out to be [`FAR`] away.
pub(super) async fn open_with(
    to: &Destination,
    wanted: &ExportRequest,
    limit: Duration,
    is_far: impl FnOnce(),
) -> Result<Opened, OpenError> {
    let reached = AtomicBool::new(false);
    let opening = async {
        let mut dialling = pin!(dial(to, &reached));
        let far = if to.tls.is_some() { FAR_TLS } else { FAR };
        let dialled = match timeout(far, dialling.as_mut()).await {
            Ok(dialled) => dialled,
            Err(_) => {
                is_far();
                dialling.await
            }
        };
        negotiate(dialled?, wanted).await
    };
    timeout(limit, opening).await.unwrap_or_else(|_| match reached.load(Ordering::Relaxed) {
        true => Err(OpenError::Silent(limit)),
        false => Err(OpenError::NoConnection(limit)),
    })
}

/// Waits, without a limit, for the first server that calls, and negotiates.
pub(super) async fn open_first(
    inbox: &Destination,
    wanted: &ExportRequest,
    limit: Duration,
) -> Result<Opened, OpenError> {
    loop {
        let dialled = dial(inbox, &AtomicBool::default()).await?;
        let negotiated = timeout(limit, negotiate(dialled, wanted)).await;
        match negotiated.unwrap_or(Err(OpenError::Silent(limit))) {
            Err(error @ OpenError::Io(_) | error @ OpenError::Silent(_)) => {
                tracing::warn!("a server that connected disappeared again: {error}");
            }
            opened => return opened,
        }
    }
}

async fn negotiate(dialled: Dialled, wanted: &ExportRequest) -> Result<Opened, OpenError> {
    let Dialled { mut reader, writer, received: mut input, transport, standing, secured } = dialled;
    let mut out = BytesMut::new();
    let mut handshake = match secured {
        Some(no_zeroes) => ClientHandshake::secured(wanted.clone(), no_zeroes, &mut out),
        None => ClientHandshake::new(wanted.clone()),
    };
    loop {
        let step = handshake.advance(&mut input, &mut out);
        writer.write_all(&out.split()).await?;
        match step? {
            Step::Done(agreement) => return Ok(Opened { agreement, transport, standing, reader, writer, input }),
            Step::Read => {}
        }
        input.reserve(4096);
        if reader.receive(&mut input).await? == 0 {
            return Err(handshake.closed().into());
        }
    }
}

/// Why a connection ended.
struct Ended {
    why: Arc<str>,
    /// When the server was last heard from.
    since: Instant,
}

/// A connection that a task of its own is opening; dropping it gives it up.
pub(super) type Opening = JoinSet<Result<Opened, OpenError>>;

/// The state of a connection when its task starts.
pub(super) enum InitialConnection {
    Opened(Box<Opened>),
    Opening(Opening),
    None,
}

/// Keeps `shared.links[index]` up until the client is dropped or refused.
pub(super) async fn keep(shared: Arc<Shared>, index: usize, initial: InitialConnection) {
    let link = &shared.links[index];
    let mut next = match initial {
        InitialConnection::Opened(opened) => Some(*opened),
        InitialConnection::Opening(mut opening) => match watched(&shared, link, opening.join_next()).await.flatten() {
            Some(Ok(Ok(opened))) if shared.recognise(&opened.agreement).is_ok() => Some(opened),
            // The server may refuse an extra connection for lack of capacity.
            _ => return link.note_refused(),
        },
        InitialConnection::None => None,
    };
    let mut was_up = next.is_some();
    // Kept while connections are lost without an answer, so that a server that closes each one is not called all the time.
    let mut backoff = Backoff::default();
    loop {
        let opened = match next.take() {
            Some(opened) => opened,
            None => match reopen(&shared, link, &mut backoff).await {
                Some(opened) => {
                    shared.counters.reconnected(was_up);
                    opened
                }
                None => return,
            },
        };
        was_up = true;
        let received = shared.counters.received_bytes();
        let ended = run(&shared, link, opened).await;
        if shared.counters.received_bytes() > received {
            backoff = Backoff::default();
        }
        link.down();
        if shared.is_over() {
            return;
        }
        shared.losses.log(&shared.name, &ended.why);
        if !shared.may_reconnect() {
            let why =
                format!("the connection was lost ({}), and the server cannot say whether it is the same", ended.why);
            // The layer above may open the source again, and says so.
            end(&shared, Refused { fenced: false, why: why.into() });
            return;
        }
        if shared.links.iter().all(|link| link.load().is_none()) {
            shared.health.down(ended.since, ended.why);
        }
    }
}

/// Reconnects, with an unlimited number of attempts. `None` once the client has ended.
async fn reopen(shared: &Shared, link: &ConnectionHandle, backoff: &mut Backoff) -> Option<Opened> {
    let to = &shared.to;
    let inbound = matches!(to.address, Address::Inbound(_));
    loop {
        // A server that calls has its own pauses.
        if !inbound {
            watched(shared, link, sleep(backoff.next_pause())).await?;
        }
        let wanted = link.next_request(&shared.wanted);
        let attempt = open(to, &wanted, shared.timeout.max(PAUSE_MAX));
        let error = match watched(shared, link, attempt).await? {
            Ok(opened) => match shared.recognise(&opened.agreement) {
                Ok(()) => {
                    tracing::debug!("{}: connected", shared.name);
                    return Some(opened);
                }
                Err(refused) if inbound => {
                    // Another server called; the right one may still call.
                    tracing::warn!("{}: hung up on another server: {}", shared.name, refused.why);
                    continue;
                }
                Err(refused) => return refuse(shared, refused),
            },
            Err(error) => error,
        };
        if !inbound
            && let OpenError::Negotiation(failure) = &error
            && let Some(refused) = Refused::for_good(failure)
        {
            return refuse(shared, refused);
        }
        if shared.links.iter().all(|link| link.load().is_none()) {
            shared.health.down(Instant::now(), error.to_string().into());
        }
        // The failed call to a client may have been another server's.
        if !inbound {
            link.note_refused();
            shared.health.changed().notify_waiters();
        }
    }
}

/// Runs `attempt`, and periodically wakes callers that wait for a connection, so that they notice their deadlines.
/// `None` if the client is dropped meanwhile.
async fn watched<T>(shared: &Shared, link: &ConnectionHandle, attempt: impl Future<Output = T>) -> Option<T> {
    let mut tick = ticker(shared.timeout);
    let mut attempt = pin!(attempt);
    poll_fn(|cx| {
        while tick.poll_tick(cx).is_ready() {
            shared.health.changed().notify_waiters();
        }
        while link.poll_nudged(cx).is_ready() {}
        if shared.is_over() { Poll::Ready(None) } else { attempt.as_mut().poll(cx).map(Some) }
    })
    .await
}

fn refuse(shared: &Shared, refused: Refused) -> Option<Opened> {
    tracing::error!("{}: gone for good: {}", shared.name, refused.why);
    end(shared, refused);
    None
}

/// Lets all requests fail from now on.
fn end(shared: &Shared, refused: Refused) {
    shared.health.refused(refused);
    shared.nudge_all();
}

impl Refused {
    /// The refusal, if retrying is pointless.
    fn for_good(failure: &Failure) -> Option<Self> {
        let (fenced, why) = match failure {
            Failure::NotGranted(context) if context.starts_with("x-cheetah:instance/") => {
                (false, "it came back empty: another instance answers".into())
            }
            Failure::NotGranted(context) if context.starts_with("x-cheetah:lease/") => {
                (true, "the write lease is not ours any more".into())
            }
            Failure::NotGranted(_) | Failure::UnknownExport { .. } => (false, format!("it came back, but {failure}")),
            Failure::Forbidden(_) | Failure::TlsOnly | Failure::Refused(_) | Failure::Violation(_) => return None,
        };
        Some(Self { fenced, why: why.into() })
    }
}

/// An event on a connection.
enum Event {
    /// Bytes were received, into the payload's own buffer or the input.
    Received { len: usize, payload: bool },
    /// A caller has queued a request, or the state changed.
    Nudged,
    /// The socket is writable again.
    Writable,
    /// Deadlines are due for a check.
    Tick,
}

/// Runs a connection until it ends.
async fn run(shared: &Shared, link: &ConnectionHandle, opened: Opened) -> Ended {
    let mut heard = Instant::now();
    let result = carry(shared, link, opened, &mut heard).await;
    let why = match result {
        Ok(why) => why,
        Err(error) => error.to_string().into(),
    };
    Ended { why, since: heard }
}

impl From<Violation> for OpenError {
    fn from(violation: Violation) -> Self {
        Self::Negotiation(violation.into())
    }
}

async fn carry(
    shared: &Shared,
    link: &ConnectionHandle,
    opened: Opened,
    heard: &mut Instant,
) -> Result<Arc<str>, OpenError> {
    let Opened { agreement, standing, mut reader, writer, mut input, .. } = opened;
    let writer = Arc::new(writer);
    let mut receiver = Receiver::new(&agreement, shared.exclusive);
    let mut tick = ticker(shared.timeout);
    let mut quiet = true;
    let mut blocked = false;
    link.up(Arc::clone(&writer));
    shared.silence.heard();
    shared.health.up();
    link.receive(&mut receiver, &mut input)?;
    loop {
        let event = next(link, &mut receiver, &mut reader, &mut input, blocked.then_some(&*writer), &mut tick).await?;
        if let Some(server) = standing.as_ref().filter(|server| server.is_revoked()) {
            return Err(io::Error::other(format!("the certificate of {} was revoked", server.identity().name)).into());
        }
        match event {
            Event::Received { len: 0, .. } => return Ok("the server closed the connection".into()),
            Event::Received { len, payload } => {
                quiet = false;
                shared.counters.received(len);
                shared.silence.heard();
                if payload {
                    receiver.received(len, &mut input);
                }
                if link.receive(&mut receiver, &mut input)? {
                    shared.health.changed().notify_waiters();
                }
            }
            Event::Nudged => {
                if shared.is_over() {
                    say_goodbye(&writer);
                    return Ok("closed".into());
                }
                if let Some(error) = link.broken() {
                    return Err(error.into());
                }
                // Lets other ready callers queue their requests, so that one system call sends them all.
                tokio::task::yield_now().await;
                blocked = link.flush() == Written::Blocked;
            }
            Event::Writable => blocked = link.flush() == Written::Blocked,
            Event::Tick => {
                let now = Instant::now();
                if !std::mem::replace(&mut quiet, true) {
                    *heard = now;
                }
                let waiting_since = link.expire(now + tick_of(shared.timeout));
                let silent_since = waiting_since.map(|since| since.max(*heard));
                if let Some(since) = silent_since.filter(|since| now.duration_since(*since) >= shared.timeout) {
                    *heard = since;
                    shared.suspect_all(since);
                    return Ok(shared.silence());
                }
                // A change that the server may still carry out holds up all others: reconnect, which fences it.
                if shared.suspected(*heard) || link.has_unfenced_change() {
                    return Ok(shared.silence());
                }
            }
        }
    }
}

/// Waits for the next event.
async fn next(
    link: &ConnectionHandle,
    receiver: &mut Receiver,
    reader: &mut ReadHalf,
    input: &mut BytesMut,
    blocked: Option<&WriteHalf>,
    tick: &mut Interval,
) -> io::Result<Event> {
    poll_fn(|cx| {
        // The tick comes first: a stream of replies must not hide a request that is never answered.
        if Pin::new(&mut *tick).poll_tick(cx).is_ready() {
            return Poll::Ready(Ok(Event::Tick));
        }
        if link.poll_nudged(cx).is_ready() {
            return Poll::Ready(Ok(Event::Nudged));
        }
        if let Some(writer) = blocked
            && let Poll::Ready(result) = writer.poll_writable(cx)
        {
            return Poll::Ready(result.map(|()| Event::Writable));
        }
        match receiver.target(link.read_len_mean()) {
            Target::Payload(buffer, len_max) => {
                reader.poll_receive(buffer, len_max, cx).map_ok(|len| Event::Received { len, payload: true })
            }
            Target::Input(len_max) => {
                if input.capacity() - input.len() < len_max {
                    input.reserve(len_max.max(INPUT_LEN));
                }
                reader.poll_receive(input, len_max, cx).map_ok(|len| Event::Received { len, payload: false })
            }
        }
    })
    .await
}

/// Sends NBD_CMD_DISC, unless the socket is full.
fn say_goodbye(writer: &WriteHalf) {
    let goodbye = Request { flags: CommandFlags::NONE, command: Command::Disconnect, cookie: 0, offset: 0, len: 0 };
    let mut out = BytesMut::with_capacity(Request::LEN);
    goodbye.encode(&mut out);
    let _ = writer.try_write_vectored(&[io::IoSlice::new(&out)]);
}
