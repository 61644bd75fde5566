//! The parser of replies. No I/O.

use bytes::{Buf, BufMut, BytesMut};
use cheetah_device::buffers;
use cheetah_device::data::Part;
use cheetah_device::receive::{DIRECT_LEN_MIN, HEAD_LEN, INPUT_LEN, SURPLUS_LEN, Target, split_surplus};

use super::inflight::{Inflight, ReadChunk, Wakers};
use crate::handshake::client::Agreement;
use crate::packing::Method;
use crate::proto::packed::{self, Codec, Head};
use crate::proto::reply::{self, ChunkKind, ErrorPayload, Header};
use crate::proto::{Command, EXTENTS_MAX, ErrorCode, OPTION_LEN_MAX, Violation};

/// Parses received bytes into answers in the table of in-flight requests.
///
/// No server can make it allocate more than the requests asked for, plus 32 MiB for the longest block status.
#[derive(Debug)]
pub struct Receiver {
    structured: bool,
    allocation: Option<u32>,
    packed: Option<Method>,
    exclusive: bool,
    payload: Option<Payload>,
}

/// A payload that has been received in part.
#[derive(Debug)]
struct Payload {
    cookie: u64,
    done: bool,
    content: Content,
    buffer: BytesMut,
    missing: usize,
}

#[derive(Debug, Clone, Copy)]
enum Content {
    Data { offset: u64 },
    Packed(Head),
    Hole,
    Status,
    Error(ChunkKind),
}

impl Payload {
    fn new(cookie: u64, done: bool, content: Content, len: usize) -> Self {
        let capacity = match content {
            // Not more than the request asked for.
            Content::Data { .. } | Content::Packed(_) if len >= DIRECT_LEN_MIN => len + SURPLUS_LEN,
            Content::Data { .. } | Content::Packed(_) => len,
            // The length is the server's claim: the buffer grows as bytes arrive.
            _ => len.min(DIRECT_LEN_MIN),
        };
        Self { cookie, done, content, buffer: buffers::empty(capacity), missing: len }
    }
}

impl Receiver {
    /// A parser for a connection with this agreement. `exclusive` as in [`ClientConfig`](super::ClientConfig).
    pub fn new(agreement: &Agreement, exclusive: bool) -> Self {
        let Agreement { structured, allocation, packed, .. } = *agreement;
        Self { structured, allocation, packed, exclusive, payload: None }
    }

    /// Where to receive the next bytes, while reads of `read_len_mean` bytes are in flight. After a payload, call
    /// [`received`](Self::received).
    pub fn target(&mut self, read_len_mean: u64) -> Target<'_> {
        match &mut self.payload {
            Some(Payload { content: Content::Data { .. } | Content::Packed(_), missing, buffer, .. }) => match *missing
            {
                DIRECT_LEN_MIN.. => Target::Payload(buffer, *missing + SURPLUS_LEN),
                missing => Target::Input(missing + HEAD_LEN),
            },
            _ if read_len_mean >= DIRECT_LEN_MIN as u64 => Target::Input(HEAD_LEN),
            _ => Target::Input(INPUT_LEN),
        }
    }

    /// Notes that `len` bytes were received into the payload's own buffer. Moves bytes behind the payload to `input`.
    pub fn received(&mut self, len: usize, input: &mut BytesMut) {
        let Some(payload) = &mut self.payload else { return };
        payload.missing = split_surplus(&mut payload.buffer, payload.missing, len, input);
    }

    /// Parses as much of `input` as possible.
    ///
    /// # Errors
    ///
    /// If the server violates the protocol; the connection must be closed.
    pub fn take(&mut self, input: &mut BytesMut, table: &mut Inflight, woken: &mut Wakers) -> Result<(), Violation> {
        loop {
            if let Some(payload) = &mut self.payload {
                let here = payload.missing.min(input.len());
                payload.buffer.put_slice(&input[..here]);
                input.advance(here);
                payload.missing -= here;
                if payload.missing > 0 {
                    return Ok(());
                }
            }
            if let Some(payload) = self.payload.take() {
                self.complete(payload, table, woken)?;
            }
            let Some((header, len)) = Header::parse(input)? else { return Ok(()) };
            let begun = match header {
                Header::Simple { cookie, result } => {
                    input.advance(len);
                    self.simple(cookie, result, table, woken)?;
                    true
                }
                Header::Chunk { cookie, kind, done, len } => {
                    self.chunk(cookie, kind, done, len as usize, input, table, woken)?
                }
            };
            if !begun {
                return Ok(());
            }
        }
    }

    fn simple(
        &mut self,
        cookie: u64,
        result: Result<(), ErrorCode>,
        table: &mut Inflight,
        woken: &mut Wakers,
    ) -> Result<(), Violation> {
        let ask = table.ask(cookie)?;
        if self.structured && matches!(ask.command, Command::Read | Command::BlockStatus) {
            return Err(Violation::new("a simple reply where a structured one was agreed"));
        }
        match result {
            Err(code) => table.add_error(cookie, code, String::new())?,
            Ok(()) if ask.command == Command::Read => {
                let len = usize::try_from(ask.range.len).map_err(|_| Violation::new("a read beyond memory"))?;
                self.payload = Some(Payload::new(cookie, true, Content::Data { offset: ask.range.offset }, len));
                return Ok(());
            }
            Ok(()) => {}
        }
        table.finish(cookie, woken)
    }

    /// Starts a chunk. `false` if it needs more input first.
    #[expect(clippy::too_many_arguments, reason = "the fields of a header")]
    fn chunk(
        &mut self,
        cookie: u64,
        kind: ChunkKind,
        done: bool,
        len: usize,
        input: &mut BytesMut,
        table: &mut Inflight,
        woken: &mut Wakers,
    ) -> Result<bool, Violation> {
        if !self.structured {
            return Err(Violation::new("a structured reply that was not agreed"));
        }
        let ask = table.ask(cookie)?;
        let allowed = match kind {
            ChunkKind::None => len == 0 && done,
            ChunkKind::OffsetData => ask.command == Command::Read && len > 8,
            ChunkKind::OffsetHole => ask.command == Command::Read && len == 12,
            ChunkKind::BlockStatus => ask.command == Command::BlockStatus && len <= 4 + 8 * EXTENTS_MAX,
            ChunkKind::Error | ChunkKind::ErrorOffset | ChunkKind::OtherError(_) => len <= OPTION_LEN_MAX,
            ChunkKind::Packed => self.packed.is_some() && ask.command == Command::Read && len >= packed::HEAD_LEN,
            ChunkKind::Unknown(_) => false,
        };
        if !allowed {
            return Err(Violation::new(format!("a chunk {kind:?} of {len} bytes in reply to {:?}", ask.command)));
        }
        let mut len = len;
        let content = match kind {
            ChunkKind::None => {
                input.advance(reply::CHUNK_LEN);
                return table.finish(cookie, woken).map(|()| true);
            }
            ChunkKind::OffsetData => {
                let Some(offset) = input.get(reply::CHUNK_LEN..).and_then(<[u8]>::first_chunk) else {
                    return Ok(false);
                };
                let offset = u64::from_be_bytes(*offset);
                input.advance(8);
                len -= 8;
                if len as u64 > table.missing(cookie) {
                    return Err(Violation::new(format!("{len} bytes in reply to a read of {}", ask.range)));
                }
                Content::Data { offset }
            }
            ChunkKind::Packed => {
                let Some(head) = input.get(reply::CHUNK_LEN..).and_then(<[u8]>::first_chunk) else {
                    return Ok(false);
                };
                let head = Head::parse(head, len - packed::HEAD_LEN)?;
                if (head.codec == Codec::Omitted) != (self.packed == Some(Method::Omit)) {
                    return Err(Violation::new("content where digests were agreed, or digests where content was"));
                }
                input.advance(packed::HEAD_LEN);
                len -= packed::HEAD_LEN;
                if u64::from(head.len) > table.missing(cookie) {
                    return Err(Violation::new(format!("{} bytes in reply to a read of {}", head.len, ask.range)));
                }
                Content::Packed(head)
            }
            ChunkKind::OffsetHole => Content::Hole,
            ChunkKind::BlockStatus => Content::Status,
            kind => Content::Error(kind),
        };
        input.advance(reply::CHUNK_LEN);
        self.payload = Some(Payload::new(cookie, done, content, len));
        Ok(true)
    }

    fn complete(&mut self, payload: Payload, table: &mut Inflight, woken: &mut Wakers) -> Result<(), Violation> {
        let Payload { cookie, done, content, buffer, .. } = payload;
        match content {
            Content::Data { offset } => {
                let bytes = if self.exclusive { buffer.freeze() } else { buffers::share(buffer) };
                table.add_data(cookie, offset, ReadChunk::Plain(Part::Bytes(bytes)))?;
            }
            Content::Packed(head) => {
                let packed = ReadChunk::Packed(Box::new((head, buffers::share(buffer))));
                table.add_data(cookie, head.offset, packed)?;
            }
            Content::Hole => {
                let (offset, len) = reply::hole(&buffer)?;
                table.add_data(cookie, offset, ReadChunk::Plain(Part::Zeros(len.into())))?;
            }
            Content::Status => {
                let (context, extents) = reply::extents(&buffer)?;
                // Other contexts are negotiated only to be granted; their extents carry no information.
                if Some(context) == self.allocation {
                    table.add_extents(cookie, extents.collect())?;
                }
            }
            Content::Error(kind) => {
                let error = ErrorPayload::parse(kind, &buffer)?;
                table.add_error(cookie, error.code, error.message)?;
            }
        }
        if done { table.finish(cookie, woken) } else { Ok(()) }
    }
}
