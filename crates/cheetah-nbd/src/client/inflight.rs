//! Requests under way on one connection, found again by their cookies. No I/O.

use std::task::{Poll, Waker};

use bytes::Bytes;
use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Extent};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::proto::packed::Head;
use crate::proto::{Command, ErrorCode, Violation};

/// Chunks a server may cut a read's reply into, beyond one a sector.
const CHUNKS_SPARE: u64 = 16;
const SECTOR: u64 = 512;

/// Wakers of requests that were completed. To be woken when no lock is held.
pub type Woken = SmallVec<[Waker; 32]>;

/// A request's name on the wire: its slot in the low half, how often the slot was used before in the high half. So
/// a reply that comes twice, or was never asked for, is noticed.
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

/// What was asked, as far as the reply must match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What to do.
    pub command: Command,
    /// Bytes concerned.
    pub range: ByteRange,
}

/// What came back.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Done.
    Done,
    /// What a read found: exactly the range that was asked for.
    Data(Data),
    /// The same, yet to be unpacked.
    Packed(Pieces),
    /// What a block status request found, from the start of the range; may be shorter or longer than it.
    Extents(Vec<Extent>),
}

/// What came in a chunk of a read's reply.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Content as it is.
    Plain(Part),
    /// Packed content, of which nothing is known yet but where it belongs and how long it is.
    Packed(Box<(Head, Bytes)>),
}

impl Piece {
    /// Bytes of content.
    fn len(&self) -> u64 {
        match self {
            Self::Plain(part) => part.len(),
            Self::Packed(packed) => packed.0.len.into(),
        }
    }
}

/// Pieces of a read with their absolute offsets.
pub type Pieces = SmallVec<[(u64, Piece); 1]>;

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The server says no.
    Server {
        /// Why.
        code: ErrorCode,
        /// The same for people; may be empty.
        message: String,
    },
    /// The connection was lost. The request may or may not have been carried out.
    Disconnected,
    /// The deadline passed.
    TimedOut,
}

/// The table of requests under way.
#[derive(Debug, Default)]
pub struct Inflight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    waiting: usize,
    reads: u64,
    read_bytes: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: State,
    ask: Ask,
    issued: Instant,
    deadline: Instant,
    reply: Reply,
}

#[derive(Debug)]
enum State {
    Free,
    /// The caller waits.
    Waiting(Option<Waker>),
    /// The deadline passed, of which the caller is to be told; the reply is still to come.
    Expired,
    /// The caller is gone or was told that it failed; the reply is still to come.
    Abandoned,
    /// Complete, to be taken by the caller.
    Done(Result<Answer, Failed>),
}

/// What has come of a reply.
#[derive(Debug, Default)]
struct Reply {
    /// In the order in which they came.
    pieces: Pieces,
    /// Bytes in them, or that would be if anyone still wanted them.
    received: u64,
    chunks: u64,
    extents: Option<Vec<Extent>>,
    error: Option<(ErrorCode, String)>,
}

impl Inflight {
    /// Requests whose reply is still to come.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The mean length of the reads under way, in bytes.
    pub fn read_len_mean(&self) -> u64 {
        self.read_bytes.checked_div(self.reads).unwrap_or(0)
    }

    /// Adds a request.
    pub fn insert(&mut self, ask: Ask, issued: Instant, deadline: Instant) -> Cookie {
        self.waiting += 1;
        if ask.command == Command::Read {
            self.reads += 1;
            self.read_bytes += ask.range.len;
        }
        let state = State::Waiting(None);
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            let generation = slot.generation.wrapping_add(1);
            *slot = Slot { generation, state, ask, issued, deadline, reply: Reply::default() };
            return Cookie::new(index, generation);
        }
        // 2³² requests at once do not fit any memory.
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { generation: 0, state, ask, issued, deadline, reply: Reply::default() });
        Cookie::new(index, 0)
    }

    /// Takes the result of a request, or leaves `waker` to be woken when it is there.
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

    /// Forgets a request; its reply, when it comes, is dropped.
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

    /// What was asked under this cookie, if its reply is still to come.
    ///
    /// # Errors
    ///
    /// If nothing was: the server made the reply up.
    pub fn ask(&self, cookie: u64) -> Result<Ask, Violation> {
        self.slots.get(Cookie(cookie).slot()).filter(|slot| slot.is(cookie)).map(|slot| slot.ask).ok_or_else(unasked)
    }

    /// Bytes of a read that are still to come.
    pub fn missing(&self, cookie: u64) -> u64 {
        let slot = self.slots.get(Cookie(cookie).slot()).filter(|slot| slot.is(cookie));
        slot.map_or(0, |slot| slot.ask.range.len.saturating_sub(slot.reply.received))
    }

    /// Takes a piece of a read.
    ///
    /// # Errors
    ///
    /// If it was not asked for, or it comes in absurdly many pieces.
    pub fn add_data(&mut self, cookie: u64, offset: u64, piece: Piece) -> Result<(), Violation> {
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

    /// Takes the extents of `base:allocation`.
    ///
    /// # Errors
    ///
    /// If they came before.
    pub fn add_extents(&mut self, cookie: u64, extents: Vec<Extent>) -> Result<(), Violation> {
        match self.slot(cookie)?.reply.extents.replace(extents) {
            None => Ok(()),
            Some(_) => Err(Violation::new("a block status request was answered twice")),
        }
    }

    /// Notes that the request failed; the first reason counts.
    ///
    /// # Errors
    ///
    /// If there is no such request.
    pub fn add_error(&mut self, cookie: u64, code: ErrorCode, message: String) -> Result<(), Violation> {
        self.slot(cookie)?.reply.error.get_or_insert((code, message));
        Ok(())
    }

    /// The reply is complete.
    ///
    /// # Errors
    ///
    /// If something is missing from it.
    pub fn finish(&mut self, cookie: u64, woken: &mut Woken) -> Result<(), Violation> {
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

    /// Fails everything under way: the connection is lost. Returns whether that includes changes to the content.
    pub fn fail_all(&mut self, woken: &mut Woken) -> bool {
        let mut changes = false;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.awaits_reply() {
                changes |= slot.ask.command.modifies();
                let cookie = Cookie::new(u32::try_from(index).unwrap_or(u32::MAX), slot.generation);
                self.complete(cookie, Err(Failed::Disconnected), woken);
            }
        }
        changes
    }

    /// Whether there are changes under way of whose outcome nobody will be told.
    pub fn has_abandoned_changes(&self) -> bool {
        self.slots.iter().any(Slot::is_abandoned_change)
    }

    /// Fails what should have been answered by `now`. Its replies may still come. Returns whether that includes
    /// changes to the content.
    pub fn expire(&mut self, now: Instant, woken: &mut Woken) -> bool {
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

    /// When the oldest request was issued whose reply is still to come.
    pub fn oldest(&self) -> Option<Instant> {
        self.slots.iter().filter(|slot| slot.awaits_reply()).map(|slot| slot.issued).min()
    }

    fn slot(&mut self, cookie: u64) -> Result<&mut Slot, Violation> {
        self.slots.get_mut(Cookie(cookie).slot()).filter(|slot| slot.is(cookie)).ok_or_else(unasked)
    }

    /// Hands over a result, or frees the slot where nobody waits for it.
    fn complete(&mut self, cookie: Cookie, result: Result<Answer, Failed>, woken: &mut Woken) {
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
    }

    fn uncount(&mut self, ask: Ask) {
        self.waiting -= 1;
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

/// Joins the pieces of a read, whose lengths add up to the range's, unless they overlap.
fn assemble(mut pieces: Pieces, range: ByteRange) -> Result<Answer, Violation> {
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
    if pieces.iter().any(|(_, piece)| matches!(piece, Piece::Packed(_))) {
        return Ok(Answer::Packed(pieces));
    }
    let mut data = Data::new();
    for (_, piece) in pieces {
        if let Piece::Plain(part) = piece {
            data.push_part(part);
        }
    }
    Ok(Answer::Data(data))
}
