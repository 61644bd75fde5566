//! Encoding a device's results as replies.

use cheetah_device::data::Part;
use cheetah_device::{Data, Error, Extent, Result};

use super::outbox::Outbox;
use super::split_state::SplitReadState;
use super::terms::Terms;
use super::work::{EXTENTS_SENT_MAX, Outcome};
use crate::packing::Chunk;
use crate::proto::{CommandFlags, ErrorCode, Request, reply};

/// Shorter runs of zeros are sent as bytes: a hole chunk would not be shorter.
const HOLE_BYTES_MIN: u64 = 512;

impl Terms {
    /// Queues the reply to `request`.
    pub(super) fn answer(&self, out: &mut Outbox, request: &Request, outcome: Outcome) {
        let result = match outcome {
            Outcome::Done(result) => result,
            Outcome::Part(result, whole) => return self.part(out, request, result, &whole),
            Outcome::Packed(result, whole) => return self.packed(out, request, result, &whole),
            Outcome::Read(Ok(data)) if data.len() == u64::from(request.len) => return self.data(out, request, &data),
            Outcome::Read(Ok(_)) => Err(Error::Invalid("the device answered with another length".into())),
            Outcome::Read(Err(error)) => Err(error),
            Outcome::Status(Ok(extents)) => return self.extents(out, request, &extents),
            Outcome::Status(Err(error)) => Err(error),
        };
        match result {
            Ok(()) => self.success(out, request),
            Err(error) => {
                tracing::warn!("{:?} of {}: {error}", request.command, request.range());
                self.failure(out, request, ErrorCode::from(&error), &error.to_string());
            }
        }
    }

    fn success(&self, out: &mut Outbox, request: &Request) {
        out.append(|out| {
            if self.structured {
                reply::chunk(out, request.cookie, reply::ChunkKind::None, true, 0);
            } else {
                reply::simple(out, request.cookie, Ok(()));
            }
        });
    }

    /// Queues an error.
    pub(super) fn failure(&self, out: &mut Outbox, request: &Request, code: ErrorCode, message: &str) {
        out.append(|out| {
            if self.structured {
                reply::error(out, request.cookie, true, code, message);
            } else {
                reply::simple(out, request.cookie, Err(code));
            }
        });
    }

    fn data(&self, out: &mut Outbox, request: &Request, data: &Data) {
        if self.structured && data.is_empty() {
            return self.success(out, request);
        }
        if !self.structured || request.flags.has(CommandFlags::DF) {
            self.head(out, request, 0, request.len, true);
            return content(out, data);
        }
        self.chunks(out, request, 0, data, true);
    }

    /// Queues part of a structured reply to a read: `data` lies `from` bytes into the request.
    pub(super) fn chunks(&self, out: &mut Outbox, request: &Request, from: u64, data: &Data, last: bool) {
        let mut at = 0;
        while at < data.len() {
            let (len, hole) = run(data, at);
            let done = last && at + len == data.len();
            // Not truncated: at most the length of the request.
            let (offset, len32) = (request.offset + from + at, len as u32);
            if hole {
                out.append(|out| reply::offset_hole(out, request.cookie, done, offset, len32));
            } else {
                self.head(out, request, from + at, len32, done);
                content(out, &data.slice(at, len));
            }
            at += len;
        }
    }

    /// Queues the header before the bytes of a read, or of its `len` bytes from `from`.
    pub(super) fn head(&self, out: &mut Outbox, request: &Request, from: u64, len: u32, last: bool) {
        out.append(|out| {
            if self.structured {
                reply::offset_data(out, request.cookie, last, request.offset + from, len);
            } else {
                reply::simple(out, request.cookie, Ok(()));
            }
        });
    }

    /// Queues the chunks of a part of a read.
    pub(super) fn part(&self, out: &mut Outbox, part: &Request, result: Result<Data>, whole: &SplitReadState) {
        let result = match result {
            Ok(data) if data.len() != part.len.into() => {
                Err(Error::Invalid("the device answered with another length".into()))
            }
            result => result,
        };
        self.part_with(out, part, result, whole, |out, data, last| self.chunks(out, part, 0, &data, last));
    }

    /// The same. `put` queues the data of the part; its argument says whether the part is the last.
    fn part_with<T>(
        &self,
        out: &mut Outbox,
        part: &Request,
        result: Result<T>,
        whole: &SplitReadState,
        put: impl FnOnce(&mut Outbox, T, bool),
    ) {
        let last = whole.answered(part.len.into());
        let mut error = whole.error.lock();
        match result {
            Ok(content) if error.is_none() => return put(out, content, last),
            Ok(_) => {}
            Err(failed) => {
                tracing::warn!("Read of {}: {failed}", part.range());
                error.get_or_insert(failed);
            }
        }
        if let Some(error) = error.as_ref().filter(|_| last) {
            self.failure(out, part, ErrorCode::from(error), &error.to_string());
        }
    }

    /// Queues the packed chunks of a part of a read.
    fn packed(&self, out: &mut Outbox, part: &Request, result: Result<Vec<Chunk>>, whole: &SplitReadState) {
        self.part_with(out, part, result, whole, |out, chunks, last| {
            let count = chunks.len();
            for (index, chunk) in chunks.into_iter().enumerate() {
                packed_chunk(out, part.cookie, last && index + 1 == count, &chunk);
            }
        });
    }

    fn extents(&self, out: &mut Outbox, request: &Request, extents: &[Extent]) {
        let limit = if request.flags.has(CommandFlags::REQ_ONE) { 1 } else { EXTENTS_SENT_MAX };
        let extents = &extents[..extents.len().min(limit)];
        let whole = [Extent::data(u64::from(request.len))];
        let mut left = usize::from(self.allocation.is_some()) + self.others.len();
        out.append(|out| {
            let allocation = self.allocation.map(|context| (context, extents));
            for (context, extents) in allocation.into_iter().chain(self.others.iter().map(|other| (*other, &whole[..])))
            {
                left -= 1;
                reply::block_status(out, request.cookie, left == 0, context, extents);
            }
        });
    }
}

/// The run of one kind that starts at `at`: its length, and whether to send it as a hole.
fn run(data: &Data, at: u64) -> (u64, bool) {
    let is_hole = |part: &Part| matches!(part, Part::Zeros(len) if *len >= HOLE_BYTES_MIN);
    let (mut start, mut end, mut kind) = (0, at, None);
    for part in data.parts() {
        let part_end = start + part.len();
        if part_end > at {
            if *kind.get_or_insert(is_hole(part)) != is_hole(part) {
                break;
            }
            end = part_end;
        }
        start = part_end;
    }
    (end - at, kind.unwrap_or(false))
}

fn content(out: &mut Outbox, data: &Data) {
    for part in data.parts() {
        match part {
            Part::Bytes(bytes) => out.payload(bytes),
            Part::Zeros(len) => out.zeros(*len),
        }
    }
}

/// Queues a packed chunk.
fn packed_chunk(out: &mut Outbox, cookie: u64, done: bool, chunk: &Chunk) {
    match chunk {
        // Not truncated, either of them: at most 1 MiB.
        Chunk::Hole(range) => out.append(|out| reply::offset_hole(out, cookie, done, range.offset, range.len as u32)),
        Chunk::Packed(head, bytes) => {
            out.append(|out| head.encode(out, cookie, done, bytes.len() as u32));
            out.payload(bytes);
        }
    }
}
