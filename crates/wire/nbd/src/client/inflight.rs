//! The table of a connection's in-flight requests, by cookie. No I/O.

use std::task::{Poll, Waker};

use bytes::Bytes;
use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Extent};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::proto::packed::Head;
use crate::proto::{Command, ErrorCode, Violation};

/// The chunks allowed in a reply to a read, beyond one per sector.
const CHUNKS_SPARE: u64 = 16;
const SECTOR: u64 = 512;

/// Wakers of completed requests. Wake them when no lock is held.
pub type Wakers = SmallVec<[Waker; 32]>;

/// A request's id on the wire: its slot in the low half, the slot's generation in the high half, so that a duplicate or
/// unsolicited reply is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u64 {
        self.0 >> 32
    }
}

/// The parts of a request that its reply must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedReply {
    /// The command.
    pub command: Command,
    /// The range it concerns.
    pub range: ByteRange,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Done.
    Done,
    /// The content of a read: exactly the requested range.
    Data(Data),
    /// The same, to be unpacked.
    Packed(ReadChunks),
    /// The extents of a block status request, from the start of the range; they may be shorter or longer than it.
    Extents(Vec<Extent>),
}

/// The content of one chunk of a reply to a read.
#[derive(Debug, Clone)]
pub enum ReadChunk {
    /// Unpacked content.
    Plain(Part),
    /// Packed content; only its position and length have been checked.
    Packed(Box<(Head, Bytes)>),
}

impl ReadChunk {
    /// Bytes of content.
    fn len(&self) -> u64 {
        match self {
            Self::Plain(part) => part.len(),
            Self::Packed(packed) => packed.0.len.into(),
        }
    }
}

/// The chunks of a read, with their absolute offsets.
pub type ReadChunks = SmallVec<[(u64, ReadChunk); 1]>;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The server returned an error.
    Server {
        /// Its code.
        code: ErrorCode,
        /// Its message; may be empty.
        message: String,
    },
    /// The connection was lost. The request may or may not have been carried out.
    Disconnected,
    /// The connection was ended because the server broke the protocol.
    Violated(Violation),
    /// The deadline passed.
    TimedOut,
}

/// The table of in-flight requests.
#[derive(Debug, Default)]
pub struct Inflight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Requests whose reply is outstanding.
    outstanding: usize,
    reads: u64,
    read_bytes: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: State,
    ask: ExpectedReply,
    issued: Instant,
    deadline: Instant,
    end: u64,
    reply: Reply,
}

/// The oldest request whose reply is outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oldest {
    /// When it was issued.
    pub issued: Instant,
    /// The number of bytes that its connection sends up to its end.
    pub end: u64,
}

#[derive(Debug)]
enum State {
    Free,
    /// The caller waits for the reply.
    Waiting(Option<Waker>),
    /// The deadline passed, and the caller does not know yet; the reply is outstanding.
    Expired,
    /// The caller is gone, or has the error; the reply is outstanding.
    Abandoned,
    /// Complete; the caller has not taken the result yet.
    Done(Result<Answer, Failed>),
}

/// The part of a reply that has been received.
#[derive(Debug, Default)]
struct Reply {
    /// In order of arrival.
    pieces: ReadChunks,
    /// Bytes in the chunks, those of abandoned reads included.
    received: u64,
    chunks: u64,
    extents: Option<Vec<Extent>>,
    error: Option<(ErrorCode, String)>,
}

impl Inflight {
    /// The number of requests whose reply is outstanding.
    pub fn len(&self) -> usize {
        self.outstanding
    }

    /// Whether no reply is outstanding.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The mean length of the in-flight reads, in bytes.
    pub fn read_len_mean(&self) -> u64 {
        self.read_bytes.checked_div(self.reads).unwrap_or(0)
    }

    /// Adds a request; its connection sends `end` bytes up to its end.
    pub fn insert(&mut self, ask: ExpectedReply, issued: Instant, deadline: Instant, end: u64) -> Cookie {
        self.outstanding += 1;
        if ask.command == Command::Read {
            self.reads += 1;
            self.read_bytes += ask.range.len;
        }
        let state = State::Waiting(None);
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            let generation = slot.generation.wrapping_add(1);
            *slot = Slot { generation, state, ask, issued, deadline, end, reply: Reply::default() };
            return Cookie::new(index, generation);
        }
        // 2³² requests at once do not fit in memory.
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { generation: 0, state, ask, issued, deadline, end, reply: Reply::default() });
        Cookie::new(index, 0)
    }

    /// Takes the result of a request, or registers `waker` for it.
    pub fn poll(&mut self, cookie: Cookie, waker: &Waker) -> Poll<Result<Answer, Failed>> {
        let Some(slot) = self.slots.get_mut(cookie.slot()).filter(|slot| cookie.generation() == slot.generation.into())
        else {
            return Poll::Ready(Err(Failed::Disconnected));
        };
        match &mut slot.state {
            State::Waiting(Some(known)) => {
                known.clone_from(waker);
                Poll::Pending
            }
            State::Waiting(none) => {
                *none = Some(waker.clone());
                Poll::Pending
            }
            State::Expired => {
                slot.state = State::Abandoned;
                Poll::Ready(Err(Failed::TimedOut))
            }
            State::Done(_) => {
                let done = std::mem::replace(&mut slot.state, State::Free);
                self.release(cookie);
                match done {
                    State::Done(result) => Poll::Ready(result),
                    _ => Poll::Ready(Err(Failed::Disconnected)),
                }
            }
            State::Free | State::Abandoned => Poll::Ready(Err(Failed::Disconnected)),
        }
    }

    /// Abandons a request; its reply is dropped when it arrives.
    pub fn abandon(&mut self, cookie: Cookie) {
        let Some(slot) = self.slots.get_mut(cookie.slot()).filter(|slot| cookie.generation() == slot.generation.into())
        else {
            return;
        };
        match slot.state {
            State::Waiting(_) | State::Expired => {
                slot.state = State::Abandoned;
                slot.reply.pieces.clear();
            }
            State::Done(_) => {
                slot.state = State::Free;
                self.release(cookie);
            }
            State::Abandoned | State::Free => {}
        }
    }

    /// The request with this cookie, if its reply is outstanding.
    ///
    /// # Errors
    ///
    /// If there is none: the reply is unsolicited.
    pub fn ask(&self, cookie: u64) -> Result<ExpectedReply, Violation> {
        self.slots.get(Cookie(cookie).slot()).filter(|slot| slot.is(cookie)).map(|slot| slot.ask).ok_or_else(unasked)
    }

    /// The outstanding bytes of a read.
    pub fn missing(&self, cookie: u64) -> u64 {
        let slot = self.slots.get(Cookie(cookie).slot()).filter(|slot| slot.is(cookie));
        slot.map_or(0, |slot| slot.ask.range.len.saturating_sub(slot.reply.received))
    }

    /// Adds a chunk of a read.
    ///
    /// # Errors
    ///
    /// If it was not requested, or there are too many chunks.
    pub fn add_data(&mut self, cookie: u64, offset: u64, piece: ReadChunk) -> Result<(), Violation> {
        let slot = self.slot(cookie)?;
        let range = ByteRange::new(offset, piece.len());
        let asked = slot.ask.range;
        slot.reply.received = slot.reply.received.saturating_add(range.len);
        slot.reply.chunks += 1;
        if !asked.contains(range) || range.len == 0 || slot.reply.received > asked.len {
            return Err(Violation::new(format!("a read of {asked} was answered with {range}, or more than once")));
        }
        if slot.reply.chunks > asked.len / SECTOR + CHUNKS_SPARE {
            return Err(Violation::new(format!("a read of {asked} was answered in too many pieces")));
        }
        if matches!(slot.state, State::Waiting(_)) {
            slot.reply.pieces.push((offset, piece));
        }
        Ok(())
    }

    /// Adds the extents of `base:allocation`.
    ///
    /// # Errors
    ///
    /// If they were received before.
    pub fn add_extents(&mut self, cookie: u64, extents: Vec<Extent>) -> Result<(), Violation> {
        match self.slot(cookie)?.reply.extents.replace(extents) {
            None => Ok(()),
            Some(_) => Err(Violation::new("a block status request was answered twice")),
        }
    }

    /// Notes that the request failed; the first error counts.
    ///
    /// # Errors
    ///
    /// If there is no such request.
    pub fn add_error(&mut self, cookie: u64, code: ErrorCode, message: String) -> Result<(), Violation> {
        self.slot(cookie)?.reply.error.get_or_insert((code, message));
        Ok(())
    }

    /// Notes that the reply is complete.
    ///
    /// # Errors
    ///
    /// If a part of it is missing.
    pub fn finish(&mut self, cookie: u64, woken: &mut Wakers) -> Result<(), Violation> {
        let slot = self.slot(cookie)?;
        let wanted = matches!(slot.state, State::Waiting(_));
        let reply = std::mem::take(&mut slot.reply);
        let result = match reply.error {
            Some((code, message)) => Err(Failed::Server { code, message }),
            None => Ok(match slot.ask.command {
                Command::Read if reply.received != slot.ask.range.len => {
                    return Err(Violation::new(format!("a read of {} was answered in part", slot.ask.range)));
                }
                Command::Read if !wanted => Answer::Done,
                Command::Read => assemble(reply.pieces, slot.ask.range)?,
                Command::BlockStatus => match reply.extents {
                    Some(extents) => Answer::Extents(extents),
                    None => return Err(Violation::new("a block status request was answered without a status")),
                },
                _ => Answer::Done,
            }),
        };
        self.complete(Cookie(cookie), result, woken);
        Ok(())
    }

    /// Fails all in-flight requests because the connection is lost. Returns whether one of them changes the content.
    pub fn fail_all(&mut self, why: &Failed, woken: &mut Wakers) -> bool {
        let mut changes = false;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.awaits_reply() {
                changes |= slot.ask.command.modifies();
                let cookie = Cookie::new(u32::try_from(index).unwrap_or(u32::MAX), slot.generation);
                self.complete(cookie, Err(why.clone()), woken);
            }
        }
        changes
    }

    /// Whether a change whose caller has gone is in flight.
    pub fn has_abandoned_changes(&self) -> bool {
        self.slots.iter().any(Slot::is_abandoned_change)
    }

    /// Fails requests whose deadline is before `now`; their replies may still arrive. Returns whether one of them
    /// changes the content.
    pub fn expire(&mut self, now: Instant, woken: &mut Wakers) -> bool {
        let mut changes = false;
        for slot in self.slots.iter_mut().filter(|slot| slot.deadline <= now) {
            changes |= slot.is_abandoned_change();
            if let State::Waiting(waker) = &mut slot.state {
                changes |= slot.ask.command.modifies();
                woken.extend(waker.take());
                slot.state = State::Expired;
                slot.reply.pieces.clear();
            }
        }
        changes
    }

    /// The oldest request whose reply is outstanding.
    pub fn oldest(&self) -> Option<Oldest> {
        let outstanding = self.slots.iter().filter(|slot| slot.awaits_reply());
        outstanding.map(|slot| Oldest { issued: slot.issued, end: slot.end }).min_by_key(|oldest| oldest.issued)
    }

    fn slot(&mut self, cookie: u64) -> Result<&mut Slot, Violation> {
        self.slots.get_mut(Cookie(cookie).slot()).filter(|slot| slot.is(cookie)).ok_or_else(unasked)
    }

    /// Stores a result for its caller, or frees the slot if the caller is gone.
    fn complete(&mut self, cookie: Cookie, result: Result<Answer, Failed>, woken: &mut Wakers) {
        let Some(slot) = self.slots.get_mut(cookie.slot()) else { return };
        let ask = slot.ask;
        match std::mem::replace(&mut slot.state, State::Free) {
            State::Waiting(waker) => {
                woken.extend(waker);
                slot.state = State::Done(result);
            }
            State::Expired => slot.state = State::Done(Err(Failed::TimedOut)),
            _ => self.release(cookie),
        }
        self.uncount(ask);
        debug_assert_eq!(self.outstanding, self.slots.iter().filter(|slot| slot.awaits_reply()).count());
    }

    fn uncount(&mut self, ask: ExpectedReply) {
        self.outstanding -= 1;
        if ask.command == Command::Read {
            self.reads -= 1;
            self.read_bytes -= ask.range.len;
        }
    }

    fn release(&mut self, cookie: Cookie) {
        self.free.push(u32::try_from(cookie.slot()).unwrap_or(u32::MAX));
    }
}

impl Slot {
    fn is(&self, cookie: u64) -> bool {
        u64::from(self.generation) == Cookie(cookie).generation() && self.awaits_reply()
    }

    fn is_abandoned_change(&self) -> bool {
        matches!(self.state, State::Abandoned) && self.ask.command.modifies()
    }

    fn awaits_reply(&self) -> bool {
        matches!(self.state, State::Waiting(_) | State::Expired | State::Abandoned)
    }
}

fn unasked() -> Violation {
    Violation::new("a reply to a request that was never made")
}

/// Joins the chunks of a read, whose lengths add up to the range's. Fails if they overlap.
fn assemble(mut pieces: ReadChunks, range: ByteRange) -> Result<Answer, Violation> {
    if !pieces.is_sorted_by_key(|(offset, _)| *offset) {
        pieces.sort_by_key(|(offset, _)| *offset);
    }
    let mut at = range.offset;
    for (offset, piece) in &pieces {
        if *offset != at {
            return Err(Violation::new(format!("the pieces of a read of {range} overlap")));
        }
        at += piece.len();
    }
    if pieces.iter().any(|(_, piece)| matches!(piece, ReadChunk::Packed(_))) {
        return Ok(Answer::Packed(pieces));
    }
    let mut data = Data::new();
    for (_, piece) in pieces {
        if let ReadChunk::Plain(part) = piece {
            data.push_part(part);
        }
    }
    Ok(Answer::Data(data))
}
