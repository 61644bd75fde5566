//! A connection in the transmission phase.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut as _, BytesMut};
use cheetah_device::{Data, Device, Io};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep};

use super::access::Peer;
use super::allowance::{Allowance, FREE_BYTES};
use super::arrivals::Arrivals;
use super::batching::{BatchMode, BatchPolicy};
use super::outbox::Outbox;
use super::split::{PART_BYTES_MIN, SplitRead};
use super::streaming::{Progress, ReplyPath, Streaming, WRITE_PIECE_BYTES};
use super::terms::Terms;
use super::work::{Slow, Work, cost, simple};
use super::workers;
use crate::busy;
use crate::proto::{Command, CommandFlags, ErrorCode, PAYLOAD_LEN_MAX, Request};

/// The most received at once, unless a write's payload is longer.
const INBOX_BYTES: usize = WRITE_PIECE_BYTES as usize;
/// With this many bytes queued, no further request is taken.
const OUTBOX_BYTES_MAX: usize = 8 << 20;
/// The same, where the next request is one to be refused.
const REFUSALS_BYTES_MAX: usize = 64 << 10;
/// The most requests in flight.
const REQUESTS_MAX: usize = 512;
/// Iterations before other connections of the thread run.
const TURNS_MAX: usize = 32;
/// How long a client may hold shared memory without sending or receiving a byte.
const PATIENCE: Duration = Duration::from_secs(60);
/// Up to this size, wake-ups cost a significant part of the time of copying.
const SMALL_BYTES_MAX: u32 = 1 << 20;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client said that it was done (NBD_CMD_DISC).
    Asked,
    /// The client closed the connection.
    Closed,
}

/// The state of one connection in transmission.
pub(super) struct Transmission<'d, S> {
    stream: S,
    device: &'d dyn Device,
    size: u64,
    terms: Terms,
    inbox: BytesMut,
    outbox: Outbox,
    /// A large request that is streamed in pieces; others wait behind it.
    streaming: Option<Streaming<'d>>,
    /// A read that is answered in parts, until all have been started; others wait behind it.
    split: Option<SplitRead>,
    slow: FuturesUnordered<Slow<'d>>,
    slow_bytes: usize,
    allowance: Allowance,
    /// The last request was received straight into the device's memory. The next one probably is, so only its header is read.
    is_in_place: bool,
    /// Bytes of a refused write's payload that remain to be discarded.
    discard: usize,
    /// The client has disconnected, or closed its side; requests in flight are completed.
    ending: Option<Ending>,
    /// Bytes of the payload that is being received.
    receiving: usize,
    /// Expires when nothing moves.
    patience: Option<Pin<Box<Sleep>>>,
    /// The next request waits for memory; reading on would only pile up more.
    waiting: bool,
    /// The mode between small requests.
    batching: BatchPolicy,
    peer: Peer,
}

impl<'d, S: AsyncRead + AsyncWrite + Arrivals + Unpin> Transmission<'d, S> {
    /// Starts with the bytes received beyond the handshake.
    pub(super) fn new(
        stream: S,
        device: &'d dyn Device,
        terms: Terms,
        received: BytesMut,
        allowance: Allowance,
        peer: Peer,
    ) -> Self {
        Self {
            stream,
            size: device.geometry().size,
            device,
            terms,
            inbox: received,
            outbox: Outbox::default(),
            streaming: None,
            split: None,
            slow: FuturesUnordered::new(),
            slow_bytes: 0,
            allowance,
            is_in_place: false,
            discard: 0,
            ending: None,
            receiving: 0,
            patience: None,
            waiting: false,
            batching: BatchPolicy::default(),
            peer,
        }
    }

    /// Runs until the client disconnects or violates the protocol.
    pub(super) async fn run(mut self) -> io::Result<Ending> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Ending>> {
        let mut progress = false;
        for _ in 0..TURNS_MAX {
            let mut moved = self.finish_slow(cx);
            moved |= self.take_requests(cx)? > 0;
            moved |= self.start_parts();
            moved |= self.stream(cx)?;
            if let Poll::Ready(sent) = self.outbox.poll_send(&mut self.stream, cx)? {
                moved |= sent;
            }
            // With TLS, sent data may wait encrypted.
            let flushed = Pin::new(&mut self.stream).poll_flush(cx)?.is_ready();
            moved |= self.receive(cx)?;
            if moved {
                progress = true;
                continue;
            }
            if let Some(ending) = self.ending
                && flushed
                && self.slow.is_empty()
                && self.outbox.len() == 0
                && self.is_settled()
            {
                return Poll::Ready(Ok(ending));
            }
            if self.allowance.give_back(self.held() + self.receiving) {
                continue;
            }
            return self.poll_patience(progress, cx);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Fails once a client that holds more than its own share of the memory has let nothing move for too long.
    fn poll_patience(&mut self, progress: bool, cx: &mut Context<'_>) -> Poll<io::Result<Ending>> {
        if !self.allowance.is_extended() {
            self.patience = None;
            return Poll::Pending;
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
        // The delay is not the client's while the device processes a request.
        if progress || !self.slow.is_empty() {
            patience.as_mut().reset(Instant::now() + PATIENCE);
        }
        patience
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::Error::other("the client holds memory and neither sends nor takes")))
    }

    /// Queues the replies of completed requests.
    fn finish_slow(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Poll::Ready(Some((request, outcome))) = self.slow.poll_next_unpin(cx) {
            self.slow_bytes -= cost(&request);
            self.terms.answer(&mut self.outbox, &request, outcome);
            moved = true;
        }
        moved
    }

    /// Takes every complete request, within the limits.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        let (mut taken, mut small) = (0, 0);
        while let Some((request, payload)) = self.next_request(cx)? {
            small += u32::from(request.len <= SMALL_BYTES_MAX);
            self.start(request, payload, cx)?;
            taken += 1;
        }
        if small > 0 {
            match self.batching.turn(small, std::time::Instant::now()) {
                BatchMode::Awake => busy::touch(),
                BatchMode::Asleep => {}
                BatchMode::Gather => workers::gather(),
            }
        }
        Ok(taken)
    }

    fn next_request(&mut self, cx: &mut Context<'_>) -> io::Result<Option<(Request, Data)>> {
        loop {
            let skipped = self.discard.min(self.inbox.len());
            self.inbox.advance(skipped);
            self.discard -= skipped;
            if self.discard > 0 || self.ending.is_some() || self.is_behind() || !self.has_room() {
                return Ok(None);
            }
            let Some(header) = self.inbox.first_chunk::<{ Request::LEN }>() else { return Ok(None) };
            if self.peer.is_revoked() {
                return Err(io::Error::other(format!("the certificate of {} was revoked", self.peer.name())));
            }
            let request = Request::parse(header).map_err(io::Error::other)?;
            if request.payload_len() > PAYLOAD_LEN_MAX {
                return Err(io::Error::other("a write is longer than 32 MiB"));
            }
            if let Err(code) = self.check(&request) {
                // Refusals do not count against the allowance, so the queue limits them.
                self.waiting = self.outbox.len() >= REFUSALS_BYTES_MAX;
                if self.waiting {
                    return Ok(None);
                }
                self.inbox.advance(Request::LEN);
                self.discard = request.payload_len() as usize;
                self.terms.failure(&mut self.outbox, &request, code, &refusal(&request, code, self.size));
                continue;
            }
            self.is_in_place = false;
            if Streaming::suits(&request, &self.terms, self.device) {
                self.inbox.advance(Request::LEN);
                self.streaming = Some(Streaming::new(request, self.device, S::KNOWN));
                self.stream(cx)?;
                continue;
            }
            self.receiving = 0;
            if self.is_to_be_split(&request) {
                self.inbox.advance(Request::LEN);
                self.split = Some(SplitRead::new(request));
                return Ok(None);
            }
            self.waiting = self.allowance.poll_hold(self.held(), cost(&request), cx).is_pending();
            if self.waiting {
                return Ok(None);
            }
            let len = Request::LEN + request.payload_len() as usize;
            if self.inbox.len() < len {
                if self.inbox.capacity() < len {
                    self.inbox.reserve((len - self.inbox.len()).max(INBOX_BYTES));
                }
                self.receiving = cost(&request);
                return Ok(None);
            }
            let payload = self.inbox.split_to(len).freeze().slice(Request::LEN..);
            return Ok(Some((request, payload.into())));
        }
    }

    /// Whether a read is answered in parts: if it is large, or if there is no memory now for all of it.
    fn is_to_be_split(&mut self, request: &Request) -> bool {
        SplitRead::must(request, &self.terms)
            || SplitRead::may(request, &self.terms) && !self.allowance.try_hold(self.held() + cost(request))
    }

    /// Starts as many parts of a read as memory allows. True if it started any.
    fn start_parts(&mut self) -> bool {
        let mut started = false;
        while let Some(split) = &mut self.split {
            if split.is_over(&self.terms, &mut self.outbox) {
                self.split = None;
                return true;
            }
            let (held, len) = (self.slow_bytes + self.outbox.len(), split.next_len());
            let has_room = self.slow.len() < REQUESTS_MAX && self.outbox.len() < OUTBOX_BYTES_MAX;
            // Not truncated: at most 1 MiB.
            let len = match has_room {
                true if self.allowance.try_hold(held + len as usize) => len,
                // The digest of a packed part covers all up to a multiple of 1 MiB, so such parts are never smaller.
                true if self.terms.packs.is_some() && held == 0 => len,
                true if self.terms.packs.is_none() && held + PART_BYTES_MIN as usize <= FREE_BYTES => {
                    len.min(PART_BYTES_MIN)
                }
                // Requests in flight finish or are sent, and then the connection is polled again.
                _ => return started,
            };
            let (part, work) = split.start(len, self.device, self.terms.packs.as_ref());
            self.begin(part, work);
            started = true;
        }
        started
    }

    /// Queues the reply if the device had the answer at hand; otherwise, it waits for it.
    fn begin(&mut self, request: Request, work: Work<'d>) {
        match work.settled() {
            Ok(outcome) => self.terms.answer(&mut self.outbox, &request, outcome),
            Err(work) => {
                self.slow_bytes += cost(&request);
                self.slow.push(Slow { request, work });
            }
        }
    }

    /// Continues a request that is processed in pieces. True once it is finished, and others can follow.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let Some(streaming) = &mut self.streaming else { return Ok(false) };
        let mut path = ReplyPath { terms: &self.terms, outbox: &mut self.outbox, stream: &mut self.stream };
        if let Progress::Finished(discard) = streaming.advance(self.device, &mut self.inbox, &mut path, cx)? {
            self.discard = discard;
            self.is_in_place = streaming.is_in_place();
            self.streaming = None;
        }
        Ok(self.streaming.is_none())
    }

    fn check(&self, request: &Request) -> Result<(), ErrorCode> {
        if self.terms.forbid(request) {
            return Err(ErrorCode::Inval);
        }
        if request.command == Command::Read && request.len > PAYLOAD_LEN_MAX {
            return Err(ErrorCode::Overflow);
        }
        request.check(self.terms.flags, self.size)
    }

    /// Whether no request is half-done, other than a write whose payload will never arrive.
    fn is_settled(&self) -> bool {
        self.split.is_none() && self.streaming.as_ref().is_none_or(|streaming| streaming.lacks(self.inbox.len()) > 0)
    }

    /// Whether the next request waits for one that is answered in parts.
    fn is_behind(&self) -> bool {
        self.streaming.is_some() || self.split.is_some()
    }

    fn has_room(&self) -> bool {
        self.slow.len() < REQUESTS_MAX && self.outbox.len() < OUTBOX_BYTES_MAX
    }

    /// Bytes held for requests and replies.
    fn held(&self) -> usize {
        self.slow_bytes + self.outbox.len()
    }

    fn start(&mut self, request: Request, payload: Data, cx: &mut Context<'_>) -> io::Result<()> {
        let fua = request.flags.has(CommandFlags::FUA);
        let (device, range) = (self.device, request.range());
        let work = match request.command {
            Command::Read if !range.is_empty() && device.answers_at_once() => {
                let mut path = ReplyPath { terms: &self.terms, outbox: &mut self.outbox, stream: &mut self.stream };
                match path.lend(device, &request, range, true, cx)? {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(error)) => Work::Read(Io::fail(error)),
                    None => Work::Read(device.read(range)),
                }
            }
            Command::Read => Work::Read(device.read(range)),
            Command::Write => Work::Done(device.write(request.offset, payload, fua)),
            // check() has refused unknown commands.
            Command::Disconnect | Command::Unknown(_) => {
                self.ending = Some(Ending::Asked);
                return Ok(());
            }
            _ => simple(device, &request, range),
        };
        self.begin(request, work);
        Ok(())
    }

    /// Reads the bytes that have arrived, unless there is no room to process them.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // Behind a request that holds up others, they pile up only as far as the inbox goes.
        let full = self.is_behind() && self.inbox.len() >= INBOX_BYTES;
        let yields = self.streaming.as_ref().is_some_and(Streaming::yields);
        if self.ending.is_some() || !self.has_room() || self.waiting || full || yields {
            return Ok(false);
        }
        let lacking = self.streaming.as_ref().map_or(0, |streaming| streaming.lacks(self.inbox.len()));
        if self.inbox.capacity() - self.inbox.len() < lacking.max(Request::LEN) {
            self.inbox.reserve(INBOX_BYTES);
        }
        // What follows goes straight into the device's memory.
        let most = match &self.streaming {
            Some(streaming) if streaming.is_in_place() => lacking.max(1),
            None if self.is_in_place && self.inbox.is_empty() && self.discard == 0 => Request::LEN,
            _ => usize::MAX,
        };
        let mut inbox = (&mut self.inbox).limit(most);
        let reading = std::pin::pin!(self.stream.read_buf(&mut inbox));
        match reading.poll(cx)? {
            Poll::Ready(0) => {
                self.ending = Some(Ending::Closed);
                Ok(true)
            }
            Poll::Ready(_) => Ok(true),
            Poll::Pending => Ok(false),
        }
    }
}

fn refusal(request: &Request, code: ErrorCode, size: u64) -> String {
    match code {
        ErrorCode::Perm => {
            "this connection may not write: the export is read-only, or another writer holds its lease".into()
        }
        _ if !request.range().fits(size) => format!("{} is outside the export of {size} bytes", request.range()),
        code => code.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cheetah_device::{ByteRange, Geometry};
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::proto::TransmissionFlags;
    use crate::server::MEMORY_BYTES_LEAST;
    use crate::server::allowance::Memory;

    /// Takes writes whole, so they are held until they have arrived.
    struct Far;

    impl Device for Far {
        fn geometry(&self) -> Geometry {
            Geometry { size: 64 << 20, writable: true, block_preferred: 4096 }
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            Io::later(async move { Ok(Data::zeros(range.len)) })
        }

        fn write(&self, _offset: u64, _data: Data, _fua: bool) -> Io<'_, ()> {
            Io::ok(())
        }
    }

    fn serve(
        stream: tokio::io::DuplexStream,
        memory: &Arc<Memory>,
    ) -> impl Future<Output = io::Result<Ending>> + use<> {
        let terms = Terms {
            flags: TransmissionFlags::default(),
            structured: true,
            allocation: None,
            others: vec![],
            packs: None,
        };
        let allowance = Allowance::new(Arc::clone(memory));
        Transmission::new(stream, &Far, terms, BytesMut::new(), allowance, Peer::UNKNOWN).run()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_refusals_is_disconnected() {
        let memory = Arc::new(Memory::new(MEMORY_BYTES_LEAST));
        let (mut client, stream) = tokio::io::duplex(64 << 10);
        let served = tokio::spawn(serve(stream, &memory));
        let mut refused = BytesMut::new();
        let beyond =
            Request { command: Command::Read, flags: CommandFlags::default(), cookie: 1, offset: 1 << 40, len: 512 };
        (0..1000).for_each(|_| beyond.encode(&mut refused));
        let mut sent = 0;
        while tokio::time::timeout(Duration::from_secs(1), client.write_all(&refused)).await.is_ok() {
            sent += refused.len();
            assert!(sent < 1 << 20, "{sent} bytes of requests to refuse were taken in");
        }
        assert!(!served.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_holds_memory_without_progress_is_disconnected() {
        let memory = Arc::new(Memory::new(MEMORY_BYTES_LEAST));
        let (mut client, stream) = tokio::io::duplex(1 << 20);
        let served = serve(stream, &memory);
        let mut begun = BytesMut::new();
        let request =
            Request { command: Command::Write, flags: CommandFlags::default(), cookie: 1, offset: 0, len: 16 << 20 };
        request.encode(&mut begun);
        client.write_all(&begun).await.unwrap();
        let since = Instant::now();
        assert!(served.await.is_err());
        assert_eq!(since.elapsed().as_secs(), PATIENCE.as_secs());
        assert!(memory.is_free(), "its memory is free for other connections");
    }
}
