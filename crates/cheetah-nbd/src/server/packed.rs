//! Reads whose content is packed. They are answered in parts of up to 1 MiB, as other large reads (see
//! [`split`](super::split)).

use std::sync::Arc;

use cheetah_device::{ByteRange, Device, Error, Io, Result};

use super::answer::Terms;
use super::outbox::Outbox;
use super::split::SplitReadState;
use crate::packing::{Chunk, Method, Packer};
use crate::proto::{Request, reply};

/// How a connection's reads are packed.
#[derive(Clone)]
pub(super) struct ReplyPacking {
    pub(super) method: Method,
    pub(super) packer: Arc<Packer>,
}

impl ReplyPacking {
    /// Reads and packs a part of a read.
    pub(super) fn part(self, device: &dyn Device, range: ByteRange, whole: Arc<SplitReadState>) -> Io<'_, Vec<Chunk>> {
        Io::later(async move {
            if whole.has_failed() {
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
    /// Queues the packed chunks of a part of a read.
    pub(super) fn packed(&self, out: &mut Outbox, part: &Request, result: Result<Vec<Chunk>>, whole: &SplitReadState) {
        self.part_with(out, part, result, whole, |out, chunks, last| {
            let count = chunks.len();
            for (index, chunk) in chunks.into_iter().enumerate() {
                put(out, part.cookie, last && index + 1 == count, &chunk);
            }
        });
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
