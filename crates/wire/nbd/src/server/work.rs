//! Requests that the device carries out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cheetah_device::{ByteRange, Data, Device, Error, Extent, Io, Zeroing};

use super::split_state::SplitReadState;
use crate::packing::Chunk;
use crate::proto::{Command, CommandFlags, Request};

/// The most extents of one reply. A client asks again for the rest.
pub(super) const EXTENTS_SENT_MAX: usize = 4096;
/// The longest range whose allocation one reply covers; a reply may cover less than the request. At worst each 4 KiB
/// are an extent of their own.
const STATUS_RANGE_MAX: u64 = 256 << 20;
/// The memory that a reply about allocation may take.
const STATUS_COST_BYTES: usize = 8 * EXTENTS_SENT_MAX;

/// Bytes that the server holds while the request is under way.
pub(super) fn cost(request: &Request) -> usize {
    match request.command {
        Command::Read | Command::Write => request.len as usize,
        Command::BlockStatus => STATUS_COST_BYTES,
        _ => 0,
    }
}

/// Starts a request without a payload in either direction, on `range` of the export.
pub(super) fn simple<'d>(device: &'d dyn Device, request: &Request, range: ByteRange) -> Work<'d> {
    let fua = request.flags.has(CommandFlags::FUA);
    match request.command {
        Command::Flush => Work::Done(device.flush()),
        Command::Cache => Work::Done(device.cache(range)),
        Command::BlockStatus => {
            Work::Status(device.extents(ByteRange::new(range.offset, range.len.min(STATUS_RANGE_MAX))))
        }
        Command::WriteZeroes => {
            let keep_allocated = request.flags.has(CommandFlags::NO_HOLE);
            let fast_only = request.flags.has(CommandFlags::FAST_ZERO);
            Work::Done(device.zero(range, Zeroing { keep_allocated, fast_only, fua }))
        }
        Command::Trim if fua => Work::Done(Io::later(async move {
            device.trim(range).await?;
            device.flush().await
        })),
        _ => Work::Done(device.trim(range)),
    }
}

/// A request the device is working on.
pub(super) struct Slow<'d> {
    pub(super) request: Request,
    pub(super) work: Work<'d>,
}

/// The operation that the device performs.
pub(super) enum Work<'d> {
    Read(Io<'d, Data>),
    Part(Io<'d, Data>, Arc<SplitReadState>),
    Packed(Io<'d, Vec<Chunk>>, Arc<SplitReadState>),
    Status(Io<'d, Vec<Extent>>),
    Done(Io<'d, ()>),
}

/// The result of a request.
pub(super) enum Outcome {
    Read(Result<Data, Error>),
    Part(Result<Data, Error>, Arc<SplitReadState>),
    Packed(Result<Vec<Chunk>, Error>, Arc<SplitReadState>),
    Status(Result<Vec<Extent>, Error>),
    Done(Result<(), Error>),
}

impl Work<'_> {
    /// The outcome, if the device returned it at once.
    pub(super) fn settled(self) -> Result<Outcome, Self> {
        match self {
            Self::Read(Io::Done(Some(result))) => Ok(Outcome::Read(result)),
            Self::Part(Io::Done(Some(result)), whole) => Ok(Outcome::Part(result, whole)),
            Self::Status(Io::Done(Some(result))) => Ok(Outcome::Status(result)),
            Self::Done(Io::Done(Some(result))) => Ok(Outcome::Done(result)),
            later => Err(later),
        }
    }

    /// The outcome, once there is one.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        fn poll<T: Unpin>(io: &mut Io<'_, T>, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
            Pin::new(io).poll(cx)
        }
        match self {
            Self::Read(io) => poll(io, cx).map(Outcome::Read),
            Self::Part(io, whole) => poll(io, cx).map(|result| Outcome::Part(result, Arc::clone(whole))),
            Self::Packed(io, whole) => poll(io, cx).map(|result| Outcome::Packed(result, Arc::clone(whole))),
            Self::Status(io) => poll(io, cx).map(Outcome::Status),
            Self::Done(io) => poll(io, cx).map(Outcome::Done),
        }
    }
}

impl Future for Slow<'_> {
    type Output = (Request, Outcome);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.work.poll(cx).map(|outcome| (this.request, outcome))
    }
}
