//! Reads whose content is packed.
//!
//! Such a read is dealt with in pieces of 1 MiB, each of which is read and packed by itself, several at a time, and is
//! sent as soon as it is ready: chunks of a structured reply may come in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cheetah_device::{ByteRange, Device, Error, Io, Result};
use parking_lot::Mutex;

use super::answer::Terms;
use super::outbox::Outbox;
use crate::packing::{Chunk, Method, Packer};
use crate::proto::packed::CONTENT_LEN_MAX;
use crate::proto::{Command, CommandFlags, ErrorCode, Request, reply};

/// How a connection's reads are packed.
#[derive(Clone)]
pub(super) struct Packs {
    pub(super) method: Method,
    pub(super) packer: Arc<Packer>,
}

/// What the pieces of one read have in common.
pub(super) struct Whole {
    /// Pieces not yet answered.
    left: AtomicUsize,
    /// Why one of them failed, and with it the read.
    error: Mutex<Option<Error>>,
}

/// One piece of a read, being packed.
pub(super) struct PackedPiece<'d> {
    pub(super) io: Io<'d, Vec<Chunk>>,
    pub(super) whole: Arc<Whole>,
}

impl Packs {
    /// Whether the reply to this read is to be packed.
    pub(super) fn suits(request: &Request) -> bool {
        request.command == Command::Read && request.len > 0 && !request.flags.has(CommandFlags::DF)
    }

    /// Starts on the pieces of a read, each with the request it would be by itself.
    pub(super) fn start<'d>(
        &self,
        device: &'d dyn Device,
        request: &Request,
    ) -> impl Iterator<Item = (Request, PackedPiece<'d>)> {
        let pieces: Vec<_> = request.range().split_at_multiples(CONTENT_LEN_MAX.into()).collect();
        let whole = Arc::new(Whole { left: AtomicUsize::new(pieces.len()), error: Mutex::new(None) });
        let (packs, request) = (self.clone(), *request);
        pieces.into_iter().map(move |range| {
            let io = packs.clone().piece(device, range, Arc::clone(&whole));
            // Not truncated: at most 1 MiB.
            let request = Request { offset: range.offset, len: range.len as u32, ..request };
            (request, PackedPiece { io, whole: Arc::clone(&whole) })
        })
    }

    fn piece(self, device: &dyn Device, range: ByteRange, whole: Arc<Whole>) -> Io<'_, Vec<Chunk>> {
        Io::later(async move {
            // The read has failed: nobody wants the rest.
            if whole.error.lock().is_some() {
                return Ok(Vec::new());
            }
            let data = device.read(range).await?;
            if data.len() != range.len {
                return Err(Error::Invalid("the device answered with another length".into()));
            }
            self.packer.pack(self.method, range.offset, data).await
        })
    }
}

impl Terms {
    /// Queues what became of one piece of a read.
    pub(super) fn packed(&self, out: &mut Outbox, request: &Request, result: Result<Vec<Chunk>>, whole: &Whole) {
        let last = whole.left.fetch_sub(1, Ordering::Relaxed) == 1;
        let mut error = whole.error.lock();
        match result {
            Ok(chunks) if error.is_none() => {
                let count = chunks.len();
                for (index, chunk) in chunks.into_iter().enumerate() {
                    put(out, request.cookie, last && index + 1 == count, &chunk);
                }
            }
            Ok(_) => {}
            Err(failed) => {
                tracing::warn!("Read of {}: {failed}", request.range());
                error.get_or_insert(failed);
            }
        }
        if let Some(error) = error.as_ref().filter(|_| last) {
            self.failure(out, request, ErrorCode::from(error), &error.to_string());
        }
    }
}

fn put(out: &mut Outbox, cookie: u64, done: bool, chunk: &Chunk) {
    match chunk {
        // Not truncated, either of them: at most 1 MiB.
        Chunk::Hole(range) => out.append(|out| reply::offset_hole(out, cookie, done, range.offset, range.len as u32)),
        Chunk::Packed(head, bytes) => {
            out.append(|out| head.encode(out, cookie, done, bytes.len() as u32));
            out.payload(bytes);
        }
    }
}
