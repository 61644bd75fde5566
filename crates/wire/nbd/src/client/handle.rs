//! One of a client's connections, as seen by callers that make requests. It may be up or down.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::BytesMut;
use cheetah_device::Data;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::delivery::Delivery;
use super::inflight::{Answer, Cookie, ExpectedReply, Failed, Inflight, Wakers};
use super::outbox::{Batch, Outbox};
use super::receive::Receiver;
use super::sequence::ConnectionSequence;
use super::stream::WriteHalf;
use crate::busy;
use crate::handshake::client::ExportRequest;
use crate::proto::{CommandFlags, Request, Violation};

/// The reply to a request of up to this length, in bytes, arrives sooner than a thread can sleep and wake.
const SMALL_LEN_MAX: u64 = 64 << 10;
/// The load of a connection that is down.
const DOWN: usize = usize::MAX;

/// A connection that is replaced when it is lost. A caller writes its own request where that saves a wake-up of the
/// connection's task; otherwise the task writes it. The task receives the replies.
#[derive(Default)]
pub(super) struct ConnectionHandle {
    state: Mutex<State>,
    /// In-flight requests, or [`DOWN`]. Read without the lock to choose a connection.
    load: AtomicUsize,
    /// Mean length of the in-flight reads, in bytes.
    read_len_mean: AtomicU64,
    /// Numbers the connections for the server; `None` if the server does not fence replaced ones.
    sequence: Option<ConnectionSequence>,
    /// The server may still carry out a change that the client has given up.
    has_unfenced_change: AtomicBool,
    /// A change is in flight whose caller has stopped waiting.
    has_abandoned_change: AtomicBool,
    /// An attempt to replace the lost connection has failed.
    is_refused: AtomicBool,
    /// Set when the task must check the connection's state again.
    nudged: AtomicBool,
    task: AtomicWaker,
}

#[derive(Default)]
struct State {
    /// Counts connections, so that a late write to one is not taken for a write to the next.
    epoch: u64,
    writer: Option<Arc<WriteHalf>>,
    inflight: Inflight,
    outbox: Outbox,
    delivery: Delivery,
    /// A caller or the task is writing, without holding the lock.
    writing: bool,
    broken: Option<io::Error>,
}

/// A request, as its caller makes it.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub ask: ExpectedReply,
    pub flags: CommandFlags,
    pub payload: Option<&'a Data>,
    pub issued: Instant,
    pub deadline: Instant,
}

/// The outcome of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Nothing is left.
    All,
    /// The socket's buffer is full.
    Blocked,
}

impl ConnectionHandle {
    pub fn new(sequence: Option<ConnectionSequence>) -> Self {
        Self { load: AtomicUsize::new(DOWN), sequence, ..Self::default() }
    }

    /// The request for the handshake of its next connection.
    pub fn next_request(&self, wanted: &ExportRequest) -> ExportRequest {
        self.sequence.as_ref().map_or_else(|| wanted.clone(), |sequence| sequence.next(wanted))
    }

    /// Whether the server may still carry out a change that was given up, until the next connection fences it. Always
    /// false where the server does not fence.
    pub fn has_unfenced_change(&self) -> bool {
        self.has_unfenced_change.load(Ordering::Acquire)
    }

    /// Whether other changes must wait, so that one of this connection's cannot overtake them.
    pub fn holds_up_changes(&self) -> bool {
        self.has_unfenced_change() || self.has_abandoned_change.load(Ordering::Acquire)
    }

    /// Whether the connection is down, and an attempt to replace it has failed.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Notes that an attempt to replace the connection has failed.
    pub fn note_refused(&self) {
        self.is_refused.store(true, Ordering::Release);
    }

    /// Must be called before a caller learns that its change was given up.
    fn note_given_up(&self, gave_up_changes: bool) {
        if gave_up_changes && self.sequence.is_some() {
            self.has_unfenced_change.store(true, Ordering::Release);
        }
    }

    /// The number of in-flight requests; `None` while the connection is down.
    pub fn load(&self) -> Option<usize> {
        Some(self.load.load(Ordering::Acquire)).filter(|load| *load != DOWN)
    }

    /// Makes a request. Fails with [`Failed::Disconnected`] at once if the connection is down.
    pub fn call<'a>(&'a self, call: Call<'_>) -> Pending<'a> {
        let mut state = self.state.lock();
        let Some(writer) = state.writer.clone() else { return Pending { link: self, cookie: None } };
        let alone = state.inflight.is_empty();
        let end = state.delivery.queue(Request::LEN as u64 + call.payload.map_or(0, Data::len));
        let cookie = state.inflight.insert(call.ask, call.issued, call.deadline, end);
        let request = Request {
            flags: call.flags,
            command: call.ask.command,
            cookie: cookie.0,
            offset: call.ask.range.offset,
            // Callers split longer ranges.
            len: u32::try_from(call.ask.range.len).unwrap_or(u32::MAX),
        };
        state.outbox.request(&request, call.payload);
        self.publish(&state);
        if state.writing {
            // The current writer sees that there is more.
        } else if alone {
            // No other request to batch this one with: skip the task.
            state.writing = true;
            let (epoch, batch) = (state.epoch, state.outbox.take());
            drop(state);
            if call.ask.range.len <= SMALL_LEN_MAX {
                busy::touch();
            }
            if self.write(&writer, epoch, batch) != Written::All {
                self.nudge();
            }
        } else {
            // Others are likely to follow at once; the task sends them all in one batch.
            drop(state);
            self.nudge();
        }
        Pending { link: self, cookie: Some(cookie) }
    }

    /// Writes the queue, unless another writer is active. For the task.
    pub fn flush(&self) -> Written {
        let mut state = self.state.lock();
        let Some(writer) = state.writer.clone() else { return Written::All };
        if state.writing || state.outbox.is_empty() && !writer.is_pending() {
            return Written::All;
        }
        state.writing = true;
        let (epoch, batch) = (state.epoch, state.outbox.take());
        drop(state);
        self.write(&writer, epoch, batch)
    }

    /// Writes until nothing is left or the socket is full. The caller has set `state.writing`.
    fn write(&self, writer: &WriteHalf, epoch: u64, mut batch: Batch) -> Written {
        loop {
            let mut written_bytes = 0;
            let result = loop {
                if batch.is_empty() {
                    break match writer.try_flush() {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Written::Blocked),
                        flushed => flushed.map(|()| Written::All),
                    };
                }
                let (slices, used) = batch.slices();
                match writer.try_write_vectored(&slices[..used]) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(len) => {
                        batch.advance(len);
                        written_bytes += len as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(Written::Blocked),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                }
            };
            let mut state = self.state.lock();
            if state.epoch != epoch {
                return Written::All;
            }
            state.outbox.put_back(batch);
            state.delivery.wrote(written_bytes);
            match result {
                Ok(Written::All) if !state.outbox.is_empty() => batch = state.outbox.take(),
                Ok(written) => {
                    state.writing = false;
                    return written;
                }
                Err(error) => {
                    // The task notices, and ends the connection.
                    state.broken = Some(error);
                    drop(state);
                    self.nudge();
                    return Written::All;
                }
            }
        }
    }

    /// Wakes the task.
    pub fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            self.task.wake();
        }
    }

    /// For the task: is ready once after each [`nudge`](Self::nudge).
    pub fn poll_nudged(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.nudged.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        self.task.register(cx.waker());
        if self.nudged.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Makes the task end the connection.
    pub fn abort(&self, why: &'static str) {
        self.state.lock().broken = Some(io::Error::other(why));
        self.nudge();
    }

    /// Takes the error of the last write, if it failed.
    pub fn broken(&self) -> Option<io::Error> {
        self.state.lock().broken.take()
    }

    /// Notes that the connection is up.
    pub fn up(&self, writer: Arc<WriteHalf>) {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.writer = Some(writer);
        state.writing = false;
        state.broken = None;
        state.outbox.clear();
        state.delivery = Delivery::default();
        // The server has fenced the connections before this one.
        self.has_unfenced_change.store(false, Ordering::Release);
        self.has_abandoned_change.store(false, Ordering::Release);
        self.is_refused.store(false, Ordering::Release);
        self.publish(&state);
    }

    /// Notes that the connection is down, and fails its in-flight requests.
    pub fn down(&self) {
        let mut woken = Wakers::new();
        let mut state = self.state.lock();
        state.epoch += 1;
        state.writer = None;
        state.outbox.clear();
        let gave_up_changes = state.inflight.fail_all(&Failed::Disconnected, &mut woken);
        self.note_given_up(gave_up_changes);
        self.load.store(DOWN, Ordering::Release);
        drop(state);
        wake(woken);
    }

    /// Parses the replies in `input` and wakes their callers; all callers, if the server breaks the protocol. Returns whether this
    /// connection has just stopped holding up changes.
    pub fn receive(&self, receiver: &mut Receiver, input: &mut BytesMut) -> Result<bool, Violation> {
        let mut woken = Wakers::new();
        let mut state = self.state.lock();
        let result = receiver.take(input, &mut state.inflight, &mut woken);
        if let Err(violation) = &result {
            let gave_up_changes = state.inflight.fail_all(&Failed::Violated(violation.clone()), &mut woken);
            self.note_given_up(gave_up_changes);
        }
        self.publish(&state);
        let settled = self.has_abandoned_change.load(Ordering::Relaxed) && !state.inflight.has_abandoned_changes();
        if settled {
            self.has_abandoned_change.store(false, Ordering::Release);
        }
        drop(state);
        wake(woken);
        result.map(|()| settled)
    }

    /// The mean length of the in-flight reads, in bytes.
    pub fn read_len_mean(&self) -> u64 {
        self.read_len_mean.load(Ordering::Relaxed)
    }

    fn publish(&self, state: &State) {
        self.load.store(state.inflight.len(), Ordering::Release);
        self.read_len_mean.store(state.inflight.read_len_mean(), Ordering::Relaxed);
    }

    /// Since when the server owes the answer to the oldest unanswered request: since it was issued or, if that took longer
    /// than one look, since more of it was last found to have arrived.
    pub fn owed_since(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let oldest = state.inflight.oldest()?;
        let unacknowledged = state.writer.as_ref().map_or(0, |writer| writer.unacknowledged());
        let progress = state.delivery.look(unacknowledged, oldest.end, Instant::now());
        Some(progress.map_or(oldest.issued, |progress| progress.max(oldest.issued)))
    }

    /// Fails requests whose deadline is before `now`. Returns when the oldest unanswered request was issued.
    pub fn expire(&self, now: Instant) -> Option<Instant> {
        let mut woken = Wakers::new();
        let mut state = self.state.lock();
        let gave_up_changes = state.inflight.expire(now, &mut woken);
        self.note_given_up(gave_up_changes);
        let oldest = state.inflight.oldest().map(|oldest| oldest.issued);
        drop(state);
        wake(woken);
        oldest
    }
}

fn wake(woken: Wakers) {
    woken.into_iter().for_each(std::task::Waker::wake);
}

/// An in-flight request. Dropping it abandons the reply.
pub(super) struct Pending<'a> {
    link: &'a ConnectionHandle,
    cookie: Option<Cookie>,
}

impl Future for Pending<'_> {
    type Output = Result<Answer, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(cookie) = self.cookie else { return Poll::Ready(Err(Failed::Disconnected)) };
        let polled = self.link.state.lock().inflight.poll(cookie, cx.waker());
        if polled.is_ready() {
            self.cookie = None;
        }
        polled
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(cookie) = self.cookie {
            let mut state = self.link.state.lock();
            state.inflight.abandon(cookie);
            if self.link.sequence.is_some() && state.inflight.has_abandoned_changes() {
                self.link.has_abandoned_change.store(true, Ordering::Release);
            }
        }
    }
}
