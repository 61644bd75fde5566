//! Large requests to devices that answer at once, one piece at a time.
//!
//! A large read from memory needs no buffer of its size: the socket gets a lent piece from the device's memory, and only what
//! the socket does not accept at once is copied. Likewise, a large write reaches the device as it arrives. So a connection
//! holds little more than a piece, however large the request.

use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use cheetah_device::{ByteRange, Device, Error};
use tokio::io::AsyncWrite;

use super::arrivals::Arrivals;
use super::outbox::Outbox;
use super::terms::Terms;
use super::work::{Outcome, Work, simple};
use crate::proto::{Command, CommandFlags, Request};

/// The size and alignment of a piece of a read. A piece is checked in full before any of it is sent: a client that received
/// it in fragments would sleep in between, and wake-ups cost more than the bytes.
const READ_PIECE_BYTES: u64 = 1 << 20;
/// The same of a write.
pub(super) const WRITE_PIECE_BYTES: u64 = 256 * 1024;
/// The size of a piece of a request without a payload: zeroing this much takes milliseconds.
const SILENT_PIECE_BYTES: u64 = 16 << 20;
/// After this many pieces in a row that went straight into the device's memory, other connections of the thread run.
const TURN_PIECES_MAX: usize = 8;
/// With this many bytes queued, no further piece is read.
const QUEUED_BYTES_MAX: usize = WRITE_PIECE_BYTES as usize;

/// A request in progress.
pub(super) struct Streaming<'d> {
    request: Request,
    /// Bytes completed.
    done: u64,
    /// The payload of a write goes straight into the device's memory, in whole blocks of this size; `None` if the device lends
    /// none, or the stream does not say what has arrived.
    block: Option<u64>,
    /// It goes on once other connections of the thread have run.
    yields: bool,
    work: Option<(u64, Work<'d>)>,
}

/// The outbox and the socket of a reply.
pub(super) struct ReplyPath<'a, S> {
    pub(super) terms: &'a Terms,
    pub(super) outbox: &'a mut Outbox,
    pub(super) stream: &'a mut S,
}

impl<S: AsyncWrite + Arrivals + Unpin> ReplyPath<'_, S> {
    /// Sends a part of a read from the device's memory; `None` if the device does not lend it.
    pub(super) fn lend(
        &mut self,
        device: &dyn Device,
        request: &Request,
        part: ByteRange,
        last: bool,
        cx: &mut Context<'_>,
    ) -> io::Result<Option<Result<(), Error>>> {
        let mut sent = Ok(());
        let lent = device.lend(part, &mut |bytes| {
            // Not truncated: a part of a request.
            self.terms.head(self.outbox, request, part.offset - request.offset, part.len as u32, last);
            sent = self.outbox.send_through(bytes, self.stream, cx);
        });
        sent?;
        Ok(lent)
    }
}

/// The progress of a request.
pub(super) enum Progress {
    /// It waits for the client or the device.
    Waiting,
    /// The reply is queued; this many bytes of payload remain to be discarded.
    Finished(usize),
}

impl<'d> Streaming<'d> {
    /// Whether to stream the request.
    pub(super) fn suits(request: &Request, terms: &Terms, device: &dyn Device) -> bool {
        u64::from(request.len) > piece_bytes(request.command)
            && device.answers_at_once()
            && match request.command {
                // Only structured replies can report an error in the middle of a read. Packed reads have pieces of
                // their own.
                Command::Read => terms.structured && terms.packs.is_none() && !request.flags.has(CommandFlags::DF),
                Command::Write | Command::WriteZeroes | Command::Trim => true,
                _ => false,
            }
    }

    /// Starts with a request whose header has been taken from the inbox, and whose payload has not.
    pub(super) fn new(request: Request, device: &dyn Device, arrivals_known: bool) -> Self {
        let block = u64::from(device.geometry().block_preferred);
        let is_in_place =
            request.command == Command::Write && arrivals_known && WRITE_PIECE_BYTES.is_multiple_of(block);
        Self { request, done: 0, block: is_in_place.then_some(block), yields: false, work: None }
    }

    /// Whether the payload goes straight into the device's memory.
    pub(super) fn is_in_place(&self) -> bool {
        self.block.is_some()
    }

    /// Whether it goes on without further bytes, once other connections of the thread have run.
    pub(super) fn yields(&self) -> bool {
        self.yields
    }

    /// Goes as far as it can.
    pub(super) fn advance<S: AsyncWrite + Arrivals + Unpin>(
        &mut self,
        device: &'d dyn Device,
        inbox: &mut BytesMut,
        path: &mut ReplyPath<'_, S>,
        cx: &mut Context<'_>,
    ) -> io::Result<Progress> {
        let mut turns = 0;
        self.yields = false;
        loop {
            if let Some((len, work)) = &mut self.work {
                let Poll::Ready(outcome) = work.poll(cx) else { return Ok(Progress::Waiting) };
                let len = *len;
                self.work = None;
                self.done += len;
                if let Err(error) = self.settle(outcome, len, path) {
                    path.terms.answer(path.outbox, &self.request, Outcome::Done(Err(error)));
                    return Ok(Progress::Finished(if self.is_write() { self.rest() as usize } else { 0 }));
                }
            }
            if self.rest() == 0 {
                if self.request.command.modifies() {
                    path.terms.answer(path.outbox, &self.request, Outcome::Done(Ok(())));
                }
                return Ok(Progress::Finished(0));
            }
            if self.request.command == Command::Read {
                if path.outbox.len() >= QUEUED_BYTES_MAX {
                    return Ok(Progress::Waiting);
                }
                let piece = self.piece();
                match path.lend(device, &self.request, piece, self.rest() == piece.len, cx)? {
                    Some(Ok(())) => {
                        self.done += piece.len;
                        continue;
                    }
                    Some(Err(error)) => {
                        path.terms.answer(path.outbox, &self.request, Outcome::Done(Err(error)));
                        return Ok(Progress::Finished(0));
                    }
                    None => {}
                }
            }
            if inbox.is_empty() {
                match self.receive(device, path.stream)? {
                    Some(Ok(())) if turns == TURN_PIECES_MAX => {
                        self.yields = true;
                        cx.waker().wake_by_ref();
                        return Ok(Progress::Waiting);
                    }
                    Some(Ok(())) => {
                        turns += 1;
                        continue;
                    }
                    Some(Err(error)) => {
                        path.terms.answer(path.outbox, &self.request, Outcome::Done(Err(error)));
                        return Ok(Progress::Finished(self.rest() as usize));
                    }
                    None => {}
                }
            }
            let Some(work) = self.next(device, inbox) else { return Ok(Progress::Waiting) };
            self.work = Some(work);
            if self.is_silent() {
                // Yields to other connections of this thread.
                cx.waker().wake_by_ref();
                return Ok(Progress::Waiting);
            }
        }
    }

    /// Receives a part of a write into the device's memory; `None` if too little has arrived, or the device lends no memory.
    fn receive<S: Arrivals>(&mut self, device: &dyn Device, stream: &S) -> io::Result<Option<Result<(), Error>>> {
        let Some(block) = self.block else { return Ok(None) };
        let piece = self.piece();
        let len = piece.len.min(stream.arrived() as u64) / block * block;
        if len == 0 || !piece.offset.is_multiple_of(block) {
            return Ok(None);
        }
        let mut received = Ok(0);
        let lent = device.lend_mut(ByteRange::new(piece.offset, len), &mut |runs| {
            received = stream.try_receive(runs);
            *received.as_ref().unwrap_or(&0)
        });
        match (lent, received) {
            (None, _) => {
                self.block = None;
                Ok(None)
            }
            (Some(Err(error)), _) => Ok(Some(Err(error))),
            (Some(Ok(())), Ok(bytes)) if (bytes as u64).is_multiple_of(block) && bytes > 0 => {
                self.done += bytes as u64;
                Ok(Some(Ok(())))
            }
            // The stream learns later what has arrived.
            (Some(Ok(())), Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            (Some(Ok(())), Err(error)) => Err(error),
            (Some(Ok(())), Ok(_)) => Err(io::Error::other("less was received than had arrived")),
        }
    }

    fn settle<S>(&self, outcome: Outcome, len: u64, path: &mut ReplyPath<'_, S>) -> Result<(), Error> {
        match outcome {
            Outcome::Read(Ok(data)) if data.len() == len => {
                path.terms.chunks(path.outbox, &self.request, self.done - len, &data, self.rest() == 0);
                Ok(())
            }
            Outcome::Read(Ok(_)) => Err(Error::Invalid("the device answered with another length".into())),
            Outcome::Read(Err(error)) | Outcome::Status(Err(error)) | Outcome::Done(Err(error)) => Err(error),
            Outcome::Status(Ok(_)) | Outcome::Done(Ok(())) | Outcome::Part(..) | Outcome::Packed(..) => Ok(()),
        }
    }

    fn next(&self, device: &'d dyn Device, inbox: &mut BytesMut) -> Option<(u64, Work<'d>)> {
        let piece = self.piece();
        if self.is_silent() {
            return Some((piece.len, simple(device, &self.request, piece)));
        }
        if self.is_write() {
            let len = self.buffered(piece, inbox.len() as u64);
            if (inbox.len() as u64) < len {
                return None;
            }
            let payload = inbox.split_to(len as usize).freeze();
            let fua = self.request.flags.has(CommandFlags::FUA);
            return Some((len, Work::Done(device.write(piece.offset, payload.into(), fua))));
        }
        Some((piece.len, Work::Read(device.read(piece))))
    }

    /// The next piece, up to a multiple of its size.
    fn piece(&self) -> ByteRange {
        let range = self.request.range();
        let start = range.offset + self.done;
        let unit = piece_bytes(self.request.command);
        ByteRange::between(start, range.end().min((start / unit + 1) * unit))
    }

    /// The bytes of a piece of a write that go through the inbox together: those up to the last block that is there in full,
    /// or else up to the end of the first one, so that the rest can go straight into the device's memory.
    fn buffered(&self, piece: ByteRange, received: u64) -> u64 {
        let Some(block) = self.block.filter(|_| received < piece.len) else { return piece.len };
        let at = piece.offset % block;
        let whole = (at + received) / block * block;
        if whole > at { whole - at } else { piece.len.min(block - at) }
    }

    /// Bytes of payload missing for the next piece of a write.
    pub(super) fn lacks(&self, received: usize) -> usize {
        if !self.is_write() {
            return 0;
        }
        (self.buffered(self.piece(), received as u64) as usize).saturating_sub(received)
    }

    /// Whether neither the request nor its reply has a payload.
    fn is_silent(&self) -> bool {
        !matches!(self.request.command, Command::Read | Command::Write)
    }

    fn is_write(&self) -> bool {
        self.request.command == Command::Write
    }

    fn rest(&self) -> u64 {
        u64::from(self.request.len) - self.done
    }
}

fn piece_bytes(command: Command) -> u64 {
    match command {
        Command::Read => READ_PIECE_BYTES,
        Command::Write => WRITE_PIECE_BYTES,
        _ => SILENT_PIECE_BYTES,
    }
}
